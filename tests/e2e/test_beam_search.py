"""Beam search of a tiny model against a search over Transformers' log probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest
import torch

from tests.e2e.server import Server
from tests.teacher import reference_model

PROMPT = [72, 101, 108, 108, 111]
EOS = 257


def reference(
    model: Any, width: int, max_tokens: int, length_penalty: float, stops: list[int]
) -> list[tuple[list[int], float]]:
    """Search as vLLM does: tokens and the sums of their log probabilities, the best first."""
    open_: list[tuple[list[int], float]] = [([], 0.0)]
    ended: list[tuple[list[int], float, bool]] = []
    for _ in range(max_tokens):
        found = []
        for tokens, total in open_:
            with torch.inference_mode():
                logits = model(torch.tensor([PROMPT + tokens])).logits[0, -1]
            best = logits.log_softmax(-1).topk(2 * width)
            for value, token in zip(best.values.tolist(), best.indices.tolist(), strict=True):
                if token in stops:
                    ended.append(([*tokens, token], total + value, True))
                else:
                    found.append(([*tokens, token], total + value))
        open_ = sorted(found, key=lambda one: -one[1])[:width]
    ended += [(tokens, total, False) for tokens, total in open_]

    def score(one: tuple[list[int], float, bool]) -> float:
        return one[1] / (len(PROMPT) + len(one[0]) - one[2]) ** length_penalty

    return [(tokens, total) for tokens, total, _ in sorted(ended, key=score, reverse=True)[:width]]


@pytest.mark.parametrize(("width", "length_penalty", "stop"), [(1, 1.0, False), (3, 1.0, False), (4, 0.0, True)])
def test_it_finds_what_a_search_over_transformers_finds(
    server: Server, tiny: Path, width: int, length_penalty: float, stop: bool
) -> None:
    model = reference_model(tiny)
    # A token that the model likes, so that beams end by it.
    stops = [reference(model, 3, 2, 1.0, [])[1][0][1]] if stop else []
    expected = reference(model, width, 6, length_penalty, [EOS, *stops])
    extra = {
        "use_beam_search": True,
        "length_penalty": length_penalty,
        "return_token_ids": True,
        "stop_token_ids": stops,
    }
    answer = server.client().completions.create(
        model="tiny", prompt=PROMPT, n=width, max_tokens=6, logprobs=1, temperature=0.5, extra_body=extra
    )
    got = [
        ((choice.model_extra or {})["token_ids"], sum(choice.logprobs.token_logprobs or []))  # type: ignore[union-attr,arg-type]
        for choice in answer.choices
    ]
    assert [tokens for tokens, _ in got] == [tokens for tokens, _ in expected]
    for (_, total), (_, wanted) in zip(got, expected, strict=True):
        assert total == pytest.approx(wanted, abs=1e-3)
    if stop:
        assert any(tokens[-1] == stops[0] for tokens, _ in expected)


def test_a_chat_gets_different_answers_and_a_grammar_is_refused(server: Server) -> None:
    asked: Any = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "n": 3, "max_tokens": 5}
    search = {"use_beam_search": True, "return_token_ids": True}
    answer = server.client().chat.completions.create(**asked, extra_body=search)
    found = [tuple((choice.model_extra or {})["token_ids"]) for choice in answer.choices]
    assert len(set(found)) == 3
    assert server.client().chat.completions.create(**asked, extra_body=search).choices == answer.choices
    with pytest.raises(openai.BadRequestError, match="use_beam_search"):
        server.client().chat.completions.create(**asked, response_format={"type": "json_object"}, extra_body=search)
