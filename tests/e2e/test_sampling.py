"""Every sampling field through HTTP with the official client; the LP, SP and US cases of ../shared/cases by id."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import torch

from tests.e2e.server import Server, running, wait_for
from tests.teacher import reference_model
from tests.tiny import make_llama, make_tokenizer

VOCAB = 288
EOS, OTHER_EOS = 257, 7
THINK, CLOSE = 258, 259
TEXT = "abc"
CHAT = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tokens end an output; thoughts have markers; the last token of the tokenizer has no logit."""
    folder = make_llama(tmp_path_factory.mktemp("tiny"))
    tokenizer = make_tokenizer()
    tokenizer.add_tokens(["<think>", "</think>", *(f"<{id}>" for id in range(CLOSE + 1, VOCAB + 1))])
    tokenizer.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [EOS, OTHER_EOS]}))
    return folder


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Server]:
    flags = ("--served-model-name", "tiny", "--dtype", "float32", "--kv-cache-memory-bytes", "16M")
    with running(model, *flags) as running_server:
        yield running_server


def complete(server: Server, prompt: Any = TEXT, **fields: Any) -> Any:
    """One greedy completion of eight tokens with ids, unless `fields` say otherwise."""
    own = {name: fields.pop(name) for name in list(fields) if name in OPENAI}
    body = {"return_token_ids": True, "ignore_eos": True} | fields
    settings = {"model": "tiny", "max_tokens": 8, "temperature": 0} | own
    return server.client().completions.create(prompt=prompt, extra_body=body, **settings)


OPENAI = {
    "temperature", "top_p", "seed", "max_tokens", "n", "logprobs", "echo", "presence_penalty", "frequency_penalty",
    "logit_bias", "stop", "stream", "stream_options",
}  # fmt: skip


def ids(answer: Any, index: int = 0) -> list[int]:
    return list(answer.choices[index].token_ids)


def logits(model: Path, tokens: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = reference_model(model)(input_ids=torch.tensor([tokens])).logits[0].float()
    return found.clone()


def post(server: Server, body: dict[str, Any] | str, route: str = "completions") -> httpx.Response:
    url = f"{server.url}/v1/{route}"
    if isinstance(body, str):
        return httpx.post(url, content=body, headers={"content-type": "application/json"}, timeout=60)
    return httpx.post(url, json=body, timeout=60)


def test_allowed_ids_and_biases(server: Server) -> None:
    allowed = ids(complete(server, allowed_token_ids=[70, 80, 90]))
    assert set(allowed) <= {70, 80, 90}
    assert ids(complete(server, logit_bias={"99": 100})) == [99] * 8
    plain = ids(complete(server))
    assert plain[0] not in ids(complete(server, logit_bias={str(plain[0]): -100}))
    assert plain == ids(complete(server, logit_bias={}))


def test_penalties_change_greedy_tokens_as_their_formula_says(server: Server, model: Path) -> None:
    prompt = [97, 98, 99]
    for name, value in (("repetition_penalty", 1.8), ("frequency_penalty", 1.9), ("presence_penalty", 1.9)):
        tokens = ids(complete(server, prompt, **{name: value}, max_tokens=12))
        for at, token in enumerate(tokens):
            row = logits(model, prompt + tokens[:at])[-1]
            for seen in set(prompt + tokens[:at]):
                count = tokens[:at].count(seen)
                if name == "repetition_penalty":
                    row[seen] = row[seen] / value if row[seen] > 0 else row[seen] * value
                elif count:
                    row[seen] -= value * (count if name == "frequency_penalty" else 1)
            assert row[token] >= row.max() - 1e-3, (name, at)


def test_min_p_of_one_is_greedy_whatever_the_temperature(server: Server) -> None:
    greedy = ids(complete(server))
    assert ids(complete(server, min_p=1.0, temperature=2.0, seed=3)) == greedy
    assert ids(complete(server, min_p=0.0, temperature=2.0, seed=3)) != greedy


def test_min_tokens_holds_back_every_stop_id(server: Server) -> None:
    first = ids(complete(server))[0]
    bias = {str(first): 100}
    stopped = complete(server, logit_bias=bias, stop_token_ids=[first])
    assert (len(ids(stopped)), stopped.choices[0].finish_reason) == (1, "stop")
    held = complete(server, logit_bias=bias, stop_token_ids=[first], min_tokens=5)
    assert len(ids(held)) == 6
    assert first not in ids(held)[:5]
    assert (held.choices[0].finish_reason, held.choices[0].stop_reason) == ("stop", first)


def test_sp11_ignore_eos(server: Server) -> None:
    for end in (EOS, OTHER_EOS):
        bias = {str(end): 100}
        assert len(ids(complete(server, logit_bias=bias, ignore_eos=False))) == 1
        answer = complete(server, logit_bias=bias, ignore_eos=True)
        assert (ids(answer), answer.choices[0].finish_reason) == ([end] * 8, "length")
        assert len(ids(complete(server, logit_bias=bias, ignore_eos=True, stop_token_ids=[end]))) == 1


def test_sp10_min_tokens_holds_back_every_end_token(server: Server) -> None:
    """The sampler alone: tests/kernels/test_logits.py."""
    bias = {str(OTHER_EOS): 100, str(EOS): 90}
    answer = complete(server, logit_bias=bias, ignore_eos=False, min_tokens=5, max_tokens=10)
    assert not {EOS, OTHER_EOS} & set(ids(answer)[:5])
    assert (ids(answer)[5:], answer.choices[0].finish_reason) == ([OTHER_EOS], "stop")
    assert answer.usage.completion_tokens == 6


def test_bad_words_are_not_said(server: Server) -> None:
    plain = complete(server, max_tokens=20)
    word = plain.choices[0].text[3:5]
    assert word.isascii()
    assert word not in complete(server, max_tokens=20, bad_words=[word]).choices[0].text


def test_repetition_detection(server: Server) -> None:
    rule = {"max_pattern_size": 3, "min_pattern_size": 1, "min_count": 4}
    answer = complete(server, logit_bias={"99": 100}, max_tokens=30, repetition_detection=rule)
    assert (ids(answer), answer.choices[0].finish_reason) == ([99] * 4, "repetition")


def test_thinking_budget(server: Server) -> None:
    fields = {"thinking_start_token_ids": [60], "thinking_end_token_ids": [61, 62]}
    prompt = [97, 60, 98]  # thoughts have begun in the prompt
    tokens = ids(complete(server, prompt, thinking_token_budget=4, max_tokens=8, logit_bias={"99": 90}, **fields))
    assert tokens == [99, 99, 99, 61, 62, 99, 99, 99]


def test_rs08_an_end_text_comes_once_or_not_at_all(server: Server) -> None:
    """The model wants to end its thoughts at once. All budgets: tests/kernels/test_logits.py."""
    fields = {"thinking_start_token_ids": [THINK], "thinking_end_token_ids": [61, 62, CLOSE]}
    for budget, expected in ((0, [61, 62, *[CLOSE] * 6]), (1, [CLOSE] * 8)):
        bias = {str(CLOSE): 100}
        found = ids(complete(server, [97, THINK], thinking_token_budget=budget, logit_bias=bias, **fields))
        assert found == expected


def test_rs09_a_budget_is_for_all_blocks_of_thoughts(server: Server) -> None:
    """The model says nothing but <think>; within thoughts that is a thought like any other."""
    bias = {str(THINK): 100}
    tokens = ids(complete(server, thinking_token_budget=3, logit_bias=bias, max_tokens=10))
    assert tokens == [THINK, *[THINK] * 3, CLOSE, THINK, CLOSE, THINK, CLOSE, THINK]


def test_stop_strings_and_special_tokens(server: Server) -> None:
    text = complete(server, max_tokens=20).choices[0].text
    stop = text[4:6]
    assert complete(server, max_tokens=20, stop=[stop]).choices[0].text == text[: text.index(stop)]
    kept = complete(server, max_tokens=20, stop=[stop], include_stop_str_in_output=True)
    assert kept.choices[0].text == text[: text.index(stop) + 2]
    bias = {str(EOS): 100}
    assert complete(server, logit_bias=bias, max_tokens=2).choices[0].text == ""
    shown = complete(server, logit_bias=bias, max_tokens=2, skip_special_tokens=False)
    assert shown.choices[0].text == "<|end|>" * 2


def test_stream_interval(server: Server) -> None:
    def chunks(**fields: Any) -> list[int]:
        stream = complete(server, stream=True, max_tokens=9, **fields)
        return [len(new) for chunk in stream if (new := getattr(chunk.choices[0], "token_ids", None))]

    assert chunks(stream_interval=4) == [1, 4, 4]
    assert sum(chunks()) == 9


@pytest.mark.parametrize("stream", [False, True])
def test_us04_batches_and_n(server: Server, stream: bool) -> None:
    prompts = ["a", "b c"]
    settings: dict[str, Any] = {"n": 2, "max_tokens": 3, "temperature": 0.8, "seed": 5}
    found: dict[int, list[int]] = {}
    if stream:
        options = {"include_usage": True}
        for chunk in complete(server, prompts, stream=True, stream_options=options, **settings):
            for choice in chunk.choices:
                found.setdefault(choice.index, []).extend(getattr(choice, "token_ids", None) or [])
            usage = chunk.usage
    else:
        answer = complete(server, prompts, **settings)
        assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
        found, usage = {choice.index: list(choice.token_ids) for choice in answer.choices}, answer.usage
    assert {index: len(tokens) for index, tokens in found.items()} == {0: 3, 1: 3, 2: 3, 3: 3}
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (4, 12, 16)
    assert found[0] != found[1]
    # The first output is that of a request for one; prompts of a batch draw apart.
    assert found[0] == ids(complete(server, "a", max_tokens=3, temperature=0.8, seed=5))
    assert found[2] == ids(complete(server, "b c", max_tokens=3, temperature=0.8, seed=5))


def test_n_prefills_once(server: Server) -> None:
    prompt = [33 + place % 80 for place in range(200)]
    names = ("iteration_tokens_total_sum", "prompt_tokens_total", "generation_tokens_total")

    def counters() -> list[float]:
        return [server.metric(f"octavo:{name}") for name in names]

    def computed(number: int) -> float:
        """Tokens that the engine computes for so many outputs of a prompt that nobody has sent before."""
        before = counters()
        answer = complete(server, [number, *prompt], n=number, max_tokens=4, temperature=3, seed=1)
        assert [choice.index for choice in answer.choices] == list(range(number))
        assert len({tuple(choice.token_ids) for choice in answer.choices}) == number
        wait_for(lambda: counters()[0] - before[0] >= 201 + number * 3, 5, "the engine tells its figures")
        seen = [now - then for now, then in zip(counters(), before, strict=True)]
        assert seen[1:] == [answer.usage.prompt_tokens, answer.usage.completion_tokens] == [201, number * 4]
        return seen[0]

    assert computed(1) == 201 + 3
    # Each further output computes what stands behind the last whole block of the prompt, and its own tokens.
    assert computed(4) == 201 + 3 + 3 * (201 % 16 + 3)


def test_token_arrays(server: Server) -> None:
    abc = make_tokenizer().encode("abc")
    one = complete(server, abc)
    assert ids(one) == ids(complete(server, "abc")) == ids(complete(server, [abc]))
    assert one.usage.prompt_tokens == 3


def test_raw_logprobs_equal_the_reference(server: Server, model: Path) -> None:
    answer = complete(server, [97, 98, 99], logprobs=3, temperature=0.7, seed=1)
    tokens, lists = ids(answer), answer.choices[0].logprobs
    expected = logits(model, [97, 98, 99, *tokens])[2:-1].log_softmax(dim=1)
    for at, token in enumerate(tokens):
        assert math.isclose(lists.token_logprobs[at], expected[at, token], abs_tol=1e-3)
        best = sorted(expected[at].tolist(), reverse=True)[:3]
        assert sorted(lists.top_logprobs[at].values(), reverse=True)[0] == pytest.approx(best[0], abs=1e-3)


def test_lp05_chat_logprobs(server: Server) -> None:
    answer = server.client().chat.completions.create(
        model="tiny",
        messages=CHAT,
        max_tokens=4,
        logprobs=True,
        top_logprobs=2,
        temperature=0,  # type: ignore[arg-type]
    )
    content = answer.choices[0].logprobs.content  # type: ignore[union-attr]
    assert content is not None
    assert answer.usage is not None
    assert len(content) == answer.usage.completion_tokens
    for entry in content:
        assert len(entry.top_logprobs) == 2
        assert entry.logprob == pytest.approx(entry.top_logprobs[0].logprob)
        assert bytes(entry.bytes or []).decode(errors="replace") == entry.token


@pytest.mark.parametrize("length", [15, 16, 17, 32, 33, 40])
def test_lp06_prompt_logprobs_with_a_warm_cache(server: Server, length: int) -> None:
    prompt = [33 + (7 * place + length) % 80 for place in range(length)]
    first, second = (complete(server, prompt, echo=True, logprobs=1, max_tokens=1) for _ in range(2))
    for answer in (first, second):
        values = answer.choices[0].logprobs.token_logprobs
        assert len(values) == length + 1
        assert values[0] is None
        assert all(math.isfinite(value) for value in values[1:])
    pairs = zip(
        first.choices[0].logprobs.token_logprobs[1:], second.choices[0].logprobs.token_logprobs[1:], strict=True
    )
    assert all(abs(one - other) < 1e-4 for one, other in pairs)
    assert server.get("/health").status_code == 200


def test_prompt_logprobs_equal_the_reference(server: Server, model: Path) -> None:
    prompt = [97, 98, 99, 100]
    answer = complete(server, prompt, prompt_logprobs=2, max_tokens=1)
    found = answer.choices[0].prompt_logprobs
    assert found[0] is None
    expected = logits(model, prompt).log_softmax(dim=1)
    for at, entry in enumerate(found[1:]):
        own = entry[str(prompt[at + 1])]
        assert own["logprob"] == pytest.approx(float(expected[at, prompt[at + 1]]), abs=1e-3)
        assert own["rank"] == int((expected[at] > expected[at, prompt[at + 1]]).sum()) + 1
    with pytest.raises(openai.BadRequestError, match="prompt_logprobs"):
        complete(server, prompt, prompt_logprobs=2, stream=True)


@pytest.mark.parametrize("echo", [False, True])
def test_lp08_text_offsets(server: Server, echo: bool) -> None:
    settings: dict[str, Any] = {"echo": echo, "logprobs": 1, "max_tokens": 6, "temperature": 0}
    answer = complete(server, "abc", **settings).choices[0]
    lists = answer.logprobs
    for token, offset in zip(lists.tokens, lists.text_offset, strict=True):
        if "\ufffd" not in token:
            assert answer.text[offset : offset + len(token)] == token
    assert lists.text_offset == sorted(lists.text_offset)
    assert answer.text.startswith("abc") == echo
    offsets: list[int] = []
    tokens: list[str] = []
    text = ""
    for chunk in complete(server, "abc", stream=True, **settings):
        text += chunk.choices[0].text
        if chunk.choices[0].logprobs:
            offsets += chunk.choices[0].logprobs.text_offset
            tokens += chunk.choices[0].logprobs.tokens
    assert (text, offsets, tokens) == (answer.text, lists.text_offset, lists.tokens)


def test_log_probabilities_of_prompts_are_bounded(server: Server) -> None:
    """Together, as they are in one answer."""
    body = {"model": "tiny", "prompt": [[97] * 400] * 600, "prompt_logprobs": 20, "max_tokens": 1}
    answer = post(server, body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "prompt_logprobs")
    assert str(600 * 400 * 21) in answer.json()["error"]["message"]


def test_echo_alone(server: Server) -> None:
    answer = complete(server, "abc", echo=True, max_tokens=0, logprobs=0)
    assert answer.choices[0].text == "abc"
    assert len(answer.choices[0].logprobs.tokens) == 3
    assert answer.usage.completion_tokens == 0


@pytest.mark.parametrize("stream", [False, True])
def test_echo_of_a_chat(server: Server, stream: bool) -> None:
    messages: Any = [*CHAT, {"role": "assistant", "content": "I say"}]
    extra = {"continue_final_message": True, "echo": True, "ignore_eos": True}

    def texts(messages: Any, **fields: Any) -> list[str]:
        asked = {"model": "tiny", "messages": messages, "max_tokens": 3, "temperature": 0, "n": 2, "stream": stream}
        answer = server.client().chat.completions.create(**asked, extra_body=extra | fields)
        found = ["", ""]
        for part in answer if stream else [answer]:
            for choice in part.choices:
                found[choice.index] += (choice.delta if stream else choice.message).content or ""
        return found

    plain = texts(messages, echo=False)
    assert texts(messages) == [f"I say{text}" for text in plain]
    # A last message of somebody else is not part of the answer.
    assert texts(CHAT, continue_final_message=False) == texts(CHAT, continue_final_message=False, echo=False)


def test_chosen_ids(server: Server) -> None:
    chosen = make_tokenizer().encode("FG")
    answer = complete(server, logprob_token_ids=chosen, max_tokens=1)
    assert {"F", "G"} <= set(answer.choices[0].logprobs.top_logprobs[0])


def test_the_whole_vocabulary_and_processed_logits(model: Path) -> None:
    flags = ("--served-model-name", "tiny", "--dtype", "float32", "--kv-cache-memory-bytes", "16M")
    modes = ("--max-logprobs", "-1", "--logprobs-mode", "processed_logits")
    override = ("--override-generation-config", '{"repetition_penalty": 2.0, "temperature": 0, "max_new_tokens": 2}')
    with running(model, *flags, *modes, *override) as server:
        body = {"model": "tiny", "prompt": [97, 98], "logprobs": -1, "ignore_eos": True}
        answer = post(server, body).json()
        row = logits(model, [97, 98])[-1]
        for seen in (97, 98):
            row[seen] = row[seen] / 2 if row[seen] > 0 else row[seen] * 2
        choice = answer["choices"][0]
        assert choice["logprobs"]["token_logprobs"][0] == pytest.approx(float(row.max()), abs=1e-3)
        # Bytes that are no characters share U+FFFD: 128 of 288 do, and ids without a token the empty text.
        assert len(choice["logprobs"]["top_logprobs"][0]) > 100
        chat = post(server, {"model": "tiny", "messages": CHAT, "ignore_eos": True}, "chat/completions").json()
        assert chat["usage"]["completion_tokens"] == 2


def test_sp04_neighbours_change_nothing(server: Server) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def a() -> list[int]:
        return ids(complete(server, "neighbour", repetition_penalty=2.0, max_tokens=5))

    def b() -> list[int]:
        return ids(complete(server, "other", seed=99, top_k=1, temperature=1, max_tokens=4))

    alone = a()
    with ThreadPoolExecutor(4) as pool:
        for order in ((a, b), (b, a)):
            results = [pool.submit(call) for call in order for _ in range(2)]
            found = [result.result() for result in results]
            assert alone in found
            assert all(tokens == alone for tokens in found if len(tokens) == 5)


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("SP01", {"logit_bias": {"7": 101}}, "logit_bias"),
    ("SP01", {"logit_bias": {"-1": 1}}, "logit_bias"),
    ("SP01", {"logit_bias": {"99999999": 5}}, "logit_bias"),
    ("SP01", {"logit_bias": {"99999999": 5, "-1": 1, "7": -100}}, "logit_bias"),
    ("SP02", {"stop_token_ids": [151645], "min_tokens": 5, "max_tokens": 8}, "stop_token_ids"),
    ("SP02", {"stop_token_ids": [VOCAB]}, "stop_token_ids"),
    ("SP02", {"stop_token_ids": [VOCAB + 1]}, "stop_token_ids"),
    ("SP02", {"stop_token_ids": [2**31]}, "stop_token_ids"),
    ("SP02", {"stop_token_ids": [-1]}, "stop_token_ids"),
    ("SP02", {"allowed_token_ids": [VOCAB]}, "allowed_token_ids"),
    ("SP02", {"bad_words": [f"<{VOCAB}>"]}, "bad_words"),
    ("SP07", {"top_k": 0.5}, "top_k"),
    ("SP07", {"temperature": -3}, "temperature"),
    ("SP07", {"top_p": 0}, "top_p"),
    ("SP07", {"top_p": 7}, "top_p"),
    ("SP07", {"min_p": 2}, "min_p"),
    ("SP07", {"temperature": "1e400"}, "temperature"),
    ("SP07", {"n": 0}, "n"),
    ("SP07", {"max_tokens": -1}, "max_tokens"),
    ("SP07", {"repetition_penalty": 0}, "repetition_penalty"),
    ("SP07", {"presence_penalty": 3}, "presence_penalty"),
    ("limits", {"logprobs": 21}, "logprobs"),
    ("limits", {"logprobs": -1}, "logprobs"),
    ("limits", {"prompt_logprobs": 21}, "prompt_logprobs"),
    ("limits", {"min_tokens": 9, "max_tokens": 8}, "min_tokens"),
    ("limits", {"allowed_token_ids": []}, "allowed_token_ids"),
    ("limits", {"logprob_token_ids": [VOCAB]}, "logprob_token_ids"),
    ("limits", {"bad_words": [""]}, "bad_words"),
    ("limits", {"n": 129}, "n"),
    ("limits", {"best_of": 2}, "best_of"),
    ("limits", {"stream_interval": 0}, "stream_interval"),
    ("limits", {"repetition_detection": {"max_pattern_size": 3, "min_count": 1}}, "repetition_detection.min_count"),
]


@pytest.mark.parametrize(("case", "fields", "param"), BAD)
def test_sp01_sp02_sp07_bad_values_are_refused_by_name(
    server: Server, case: str, fields: dict[str, Any], param: str
) -> None:
    answer = post(server, {"model": "tiny", "prompt": "hi", **fields})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), (case, answer.text)


def test_after_bad_values_good_ones_work(server: Server) -> None:
    for number in ("NaN", "1e400"):
        assert post(server, f'{{"model":"tiny","prompt":"x","temperature":{number}}}').status_code == 400
    edge: list[dict[str, Any]] = [
        {"logit_bias": {"7": -100}}, {"stop_token_ids": [VOCAB - 1]}, {"allowed_token_ids": [VOCAB - 1]},
        {"temperature": 0}, {"top_p": 1}, {"top_k": -1}, {"top_k": 0}, {"top_k": 1}, {"min_p": 0}, {"min_p": 1},
        {"logit_bias": {str(VOCAB - 1): 100}}, {"bad_words": ["x"]},
    ]  # fmt: skip
    for fields in edge:
        answer = post(server, {"model": "tiny", "prompt": "hi", "max_tokens": 2, **fields})
        assert answer.status_code == 200, (fields, answer.text)
    chat = post(server, {"model": "tiny", "messages": CHAT, "top_logprobs": 2}, "chat/completions")
    assert (chat.status_code, chat.json()["error"]["param"]) == (400, "top_logprobs")
    assert server.get("/health").status_code == 200


def test_us01_usage_comes_once_and_last(server: Server) -> None:
    """Also where the first token ends the output. With tools: rust_frontend/http/tests/calls.rs."""
    for fields in ({}, {"n": 2}, {"logit_bias": {str(EOS): 100}}):
        stream = server.client().chat.completions.create(
            model="tiny",
            messages=CHAT,
            max_tokens=3,
            stream=True,
            stream_options={"include_usage": True},
            **fields,  # type: ignore[call-overload]
        )
        chunks = list(stream)
        assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
        usage = chunks[-1].usage
        assert chunks[-1].choices == []
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
