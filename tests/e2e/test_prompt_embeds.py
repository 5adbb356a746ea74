"""`prompt_embeds` over HTTP: as `torch.save` and safetensors write them, through the official SDK; what is refused."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file, save

from tests.e2e.server import Server, running

PROMPTS = [list(b"The first prompt of several"), list(b"Another one, which is longer than that")]
TEXT = {"model": "tiny", "max_tokens": 12, "temperature": 0}


@pytest.fixture(scope="module")
def server(tiny: Path) -> Iterator[Server]:
    flags = ("--served-model-name", "tiny", "--dtype", "float32", "--kv-cache-memory-bytes", "16M")
    with running(tiny, *flags, "--enable-prompt-embeds") as running_server:
        yield running_server


@pytest.fixture(scope="module")
def table(tiny: Path) -> torch.Tensor:
    return load_file(tiny / "model.safetensors")["model.embed_tokens.weight"]


def saved(tensor: Any) -> str:
    """As vLLM documents it: base64 of what torch.save writes."""
    file = io.BytesIO()
    torch.save(tensor, file)
    return base64.b64encode(file.getvalue()).decode()


def post(server: Server, **fields: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/completions", json=TEXT | fields, timeout=60)


def texts(response: httpx.Response) -> list[str]:
    assert response.status_code == 200, response.text
    return [choice["text"] for choice in response.json()["choices"]]


def test_vectors_of_ids_give_what_the_ids_give(server: Server, table: torch.Tensor) -> None:
    """The SDK wants a prompt: an empty one is none."""
    client = server.client()
    for ids in PROMPTS:
        of_ids = client.completions.create(prompt=ids, logprobs=2, **TEXT)
        vectors = {"prompt_embeds": saved(table[ids])}
        given = client.completions.create(prompt="", logprobs=2, extra_body=vectors, **TEXT)
        assert given.choices[0].text == of_ids.choices[0].text
        assert given.choices[0].logprobs.tokens == of_ids.choices[0].logprobs.tokens
        assert given.usage.prompt_tokens == len(ids)
        stream = client.completions.create(prompt="", stream=True, extra_body=vectors, **TEXT)
        assert "".join(chunk.choices[0].text for chunk in stream) == of_ids.choices[0].text


def test_every_form_of_a_file(server: Server, table: torch.Tensor) -> None:
    ids = PROMPTS[0]
    (expected,) = texts(post(server, prompt=ids))
    rows = table[ids]
    wide = torch.zeros(len(ids) + 3, 2 * rows.shape[1])
    wide[3:, ::2] = rows
    forms = {
        "a batch of one": saved(rows.unsqueeze(0)),
        "a parameter": saved(torch.nn.Parameter(rows)),
        "a transposed one": saved(rows.t().contiguous().t()),
        "a slice of a larger one": saved(wide[3:, ::2]),
        "with gradients": saved(rows.clone().requires_grad_()),
        "safetensors": base64.b64encode(save({"x": rows}, {"made": "here"})).decode(),
    }
    assert "".join(set(texts(post(server, prompt_embeds=list(forms.values()))))) == expected
    for dtype in (torch.bfloat16, torch.float16):
        assert len(texts(post(server, prompt_embeds=saved(rows.to(dtype))))) == 1


def test_batches_and_prompts_beside_them(server: Server, table: torch.Tensor) -> None:
    expected = [text for ids in PROMPTS for text in texts(post(server, prompt=ids))]
    vectors = [saved(table[ids]) for ids in PROMPTS]
    assert texts(post(server, prompt_embeds=vectors)) == expected
    mixed = post(server, prompt_embeds=vectors[1], prompt=[PROMPTS[0], PROMPTS[1]])
    assert texts(mixed) == [expected[1], expected[0], expected[1]]
    assert mixed.json()["usage"]["prompt_tokens"] == 2 * len(PROMPTS[1]) + len(PROMPTS[0])
    several = post(server, prompt_embeds=vectors, n=3, temperature=1, seed=7)
    alike = post(server, prompt=PROMPTS, n=3, temperature=1, seed=7)
    assert texts(several) == texts(alike)
    ids = post(server, prompt_embeds=vectors[0], return_token_ids=True).json()["choices"][0]
    assert ids["prompt_token_ids"] == [] and len(ids["token_ids"]) == 12


def test_penalties_do_not_count_the_ids_that_are_not_there(server: Server, table: torch.Tensor) -> None:
    """A text penalized by its own tokens alone: what a prompt of one token does that is never drawn."""
    ids = PROMPTS[0]
    plain = {"max_tokens": 30, "temperature": 0, "model": "tiny"}
    drawn = client_ids(server, plain | {"prompt": ids, "frequency_penalty": 1.5})
    given = client_ids(server, plain | {"prompt_embeds": saved(table[ids]), "frequency_penalty": 1.5})
    assert given == drawn
    first = client_ids(
        server, plain | {"prompt_embeds": saved(table[ids]), "repetition_penalty": 1e6, "logit_bias": {"0": 100}}
    )
    assert first[0] == 0  # not penalized, though the prompt's ids are 0 in the engine


def client_ids(server: Server, body: dict[str, Any]) -> list[int]:
    answer = httpx.post(f"{server.url}/v1/completions", json=body | {"return_token_ids": True}, timeout=60)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["choices"][0]["token_ids"])


class Opens:
    """What a pickle may do to whoever loads it."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (exec, ("raise SystemExit('loaded')",))


def bad(table: torch.Tensor) -> dict[str, tuple[dict[str, Any], str, str]]:
    rows = table[PROMPTS[0]]
    hidden = rows.shape[1]
    nan = rows.clone()
    nan[2, 5] = float("nan")
    old = io.BytesIO()
    torch.save(rows, old, _use_new_zipfile_serialization=False)
    cut = base64.b64encode(base64.b64decode(saved(rows))[:-40]).decode()
    two = base64.b64encode(save({"a": rows, "b": rows.clone()})).decode()
    longer = torch.zeros(600, hidden)
    return {
        "no base64": ({"prompt_embeds": "!!"}, "prompt_embeds", "base64"),
        "no string": ({"prompt_embeds": [1, 2]}, "prompt_embeds", "base64"),
        "an object": ({"prompt_embeds": {"a": 1}}, "prompt_embeds", "base64"),
        "an empty list": ({"prompt_embeds": []}, "prompt_embeds", "empty"),
        "no file": ({"prompt_embeds": "YWJjZGVmZ2hpamtsbW5vcA=="}, "prompt_embeds", "safetensors"),
        "nothing": ({"prompt_embeds": ""}, "prompt_embeds", "safetensors"),
        "a program": ({"prompt_embeds": saved(Opens())}, "prompt_embeds", "exec"),
        "a table of tensors": ({"prompt_embeds": saved({"a": rows})}, "prompt_embeds", "one"),
        "two tensors": ({"prompt_embeds": two}, "prompt_embeds", "one tensor"),
        "the old format": ({"prompt_embeds": base64.b64encode(old.getvalue()).decode()}, "prompt_embeds", "zip"),
        "a cut file": ({"prompt_embeds": cut}, "prompt_embeds", "damaged"),
        "one dimension": ({"prompt_embeds": saved(rows[0])}, "prompt_embeds", "[64]"),
        "two texts in one": ({"prompt_embeds": saved(torch.stack([rows, rows]))}, "prompt_embeds", "[2, 27, 64]"),
        "no vectors": ({"prompt_embeds": saved(rows[:0])}, "prompt_embeds", "[0, 64]"),
        "another width": ({"prompt_embeds": saved(rows[:, :32])}, "prompt_embeds", "32"),
        "integers": ({"prompt_embeds": saved(rows.int())}, "prompt_embeds", "IntStorage"),
        "doubles": ({"prompt_embeds": saved(rows.double())}, "prompt_embeds", "DoubleStorage"),
        "sparse": ({"prompt_embeds": saved(rows.to_sparse())}, "prompt_embeds", "dense"),
        "much out of little": (
            {"prompt_embeds": saved(torch.zeros(1).expand(500, 1 << 20))},
            "prompt_embeds",
            "contiguous",
        ),
        "no number": ({"prompt_embeds": saved(nan)}, "prompt_embeds", "number 5 of vector 2"),
        "too long": ({"prompt_embeds": saved(longer)}, "prompt_embeds", "600"),
        "one of several": ({"prompt_embeds": [saved(rows), "!!"]}, "prompt_embeds", "base64"),
        "echo": ({"prompt_embeds": saved(rows), "echo": True}, "echo", "prompt_embeds"),
        "prompt_logprobs": ({"prompt_embeds": saved(rows), "prompt_logprobs": 1}, "prompt_logprobs", "prompt_logprobs"),
        "beams": ({"prompt_embeds": saved(rows), "use_beam_search": True, "n": 2}, "use_beam_search", "prompt_embeds"),
    }


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_refused(server: Server, table: torch.Tensor, stream: bool) -> None:
    for name, (fields, param, part) in bad(table).items():
        answer = post(server, stream=stream, **fields)
        assert answer.status_code == 400, f"{name}: {answer.status_code} {answer.text}"
        error = answer.json()["error"]
        assert error["param"] == param and part in error["message"], f"{name}: {error}"
    assert texts(post(server, prompt="still here"))
