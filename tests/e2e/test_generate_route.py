"""What a rendered body may ask of /inference/v1/generate: several outputs, log probabilities, the form of an output."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.e2e.server import Server
from tests.tiny import make_tokenizer

CHAT, GENERATE = "/v1/chat/completions", "/inference/v1/generate"
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "max_tokens": 12}


def post(server: Server, path: str, body: Any) -> Any:
    answer = httpx.post(f"{server.url}{path}", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(
    "form", [{"structured_outputs": {"choice": ["yes", "no"]}}, {"structured_outputs": {"regex": "[0-9]{3}"}}]
)
def test_the_form_of_an_output_goes_with_the_rendered_body(server: Server, form: dict[str, Any]) -> None:
    rendered = post(server, f"{CHAT}/render", {**BODY, **form})
    assert rendered["sampling_params"]["structured_outputs"] == form["structured_outputs"]
    ids = post(server, GENERATE, rendered)["choices"][0]["token_ids"]
    said = post(server, CHAT, {**BODY, **form})["choices"][0]["message"]["content"]
    assert make_tokenizer().decode(ids, skip_special_tokens=True) == said
    assert said in ("yes", "no") or (len(said) == 3 and said.isdigit())


def test_several_outputs_and_log_probabilities_as_in_a_chat(server: Server) -> None:
    body = {**BODY, "n": 2, "logprobs": True, "top_logprobs": 2, "seed": 1}
    rendered = post(server, f"{CHAT}/render", body)
    whole, answer = post(server, CHAT, body), post(server, GENERATE, rendered)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert [choice["logprobs"] for choice in answer["choices"]] == [choice["logprobs"] for choice in whole["choices"]]
    assert answer["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    streamed: dict[int, list[int]] = {0: [], 1: []}
    with httpx.stream("POST", f"{server.url}{GENERATE}", json={**rendered, "stream": True}, timeout=60) as events:
        for line in events.iter_lines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    streamed[choice["index"]] += choice["token_ids"]
    assert streamed == {choice["index"]: choice["token_ids"] for choice in answer["choices"]}
