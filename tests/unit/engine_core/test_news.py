"""What a request with extras tells, and when."""

from __future__ import annotations

from octavo.engine_core.news import News, join, rows_of, without_prompt
from octavo.wire.codec import pack_tokens
from octavo.wire.frontend import SamplingExtras, SamplingParams
from tests.engine.fake_worker import reference_logprobs
from tests.engine.harness import Harness, Setup, request


def test_the_first_token_goes_at_once_the_others_in_groups() -> None:
    h = Harness(Setup())
    h.add(request(1, [5, 6, 7], 9, extras=SamplingExtras(stream_interval=4, logprobs=1)))
    h.run()
    assert h.seen[1].deltas == [1, 4, 4]
    h.verify_all()


def test_a_crash_tells_nothing_twice() -> None:
    for window in (1, 2):
        h = Harness(Setup(window=window))
        extras = SamplingExtras(
            stream_interval=3, logprobs=2, prompt_logprobs=1, repetition_penalty=1.5, min_tokens=4,
            bad_words=(pack_tokens([3]),),
        )  # fmt: skip
        for number in range(1, 5):
            h.add(request(number, list(range(number, number + 9)), 12, stop=(number,), extras=extras))
        for _ in range(6):
            h.step()
        h.crash()
        h.run()
        h.verify_all()


def test_a_replayed_request_has_the_prompts_already() -> None:
    news = News(SamplingExtras(prompt_logprobs=1), emitted=2)
    assert not news.reads_prompt
    assert not news.due(2, False) or news.told == 2
    params = SamplingParams(1, 2, extras=SamplingExtras(prompt_logprobs=3, logprobs=1))
    assert without_prompt(params).extras == SamplingExtras(logprobs=1)


def test_rows_are_cut_and_joined() -> None:
    whole = reference_logprobs(list(range(9)), 3, 2)
    assert whole is not None
    assert join([rows_of(whole, 0, 2), rows_of(whole, 2, 6)]) == whole
    assert rows_of(whole, 0, 6) is whole
