"""One plan in flight or two: the same outputs, over random workloads. OCTAVO_WORKLOADS says how many (60)."""

from __future__ import annotations

import os
import random
from dataclasses import replace

import msgspec
import pytest

from octavo.wire.codec import pack_tokens
from octavo.wire.frontend import Domain, RepetitionDetection, SamplingExtras, ThinkingBudget
from tests.engine.harness import Harness, Setup, Transcript
from tests.property.test_engine_model import Arrival, message_of

WORKLOADS = int(os.environ.get("OCTAVO_WORKLOADS", "60"))
CHUNK = 20


def arrival(rng: random.Random) -> Arrival:
    return Arrival(
        at=rng.randrange(25),
        shared=rng.choice([0, 0, 7, 12, 13, 24, 30]),
        own=rng.randrange(13),
        max_tokens=rng.randrange(1, 15),
        stop_after=rng.choice([None, rng.randrange(1, 11)]),
        abort_at=rng.choice([None, None, rng.randrange(13)]),
        priority=rng.choice([0, 0, 1]),
        temperature=rng.choice([0.0, 1.0]),
        replayed=rng.choice([0, 0, 0, 2, 5]),
        grammar=rng.choice([None, None, None, "7,2,9", "3,20,20"]),
        extras=extras(rng) if rng.random() < 0.5 else None,
    )


def extras(rng: random.Random) -> SamplingExtras:
    """What few requests ask of sampling: penalties, words, probabilities, circles, budgets."""
    return SamplingExtras(
        repetition_penalty=rng.choice([1.0, 1.5]),
        min_tokens=rng.randrange(7),
        allowed_token_ids=rng.choice([b"", b"", pack_tokens([0, 1, 2, 3])]),
        bad_words=rng.choice([(), (pack_tokens([12]), pack_tokens([13, 14]))]),
        logprobs=rng.choice([None, 0, 2]),
        prompt_logprobs=rng.choice([None, None, 1]),
        repetition=rng.choice([None, RepetitionDetection(rng.randrange(1, 5), 1, rng.randrange(2, 4))]),
        thinking=rng.choice([None, ThinkingBudget(rng.randrange(5), pack_tokens([1]), pack_tokens([2, 900]))]),
        stream_interval=rng.choice([1, 1, 3, 100]),
    )


def setup(rng: random.Random) -> Setup:
    return Setup(
        spare_blocks=(rng.randrange(13), rng.randrange(13), rng.randrange(9)),
        block_tokens=rng.choice([(4, 3, 6), (2, 4, 8), (5, 1, 3), (1, 2, 4), (4, 4, 4)]),
        max_num_seqs=rng.randrange(1, 7),
        budget=rng.randrange(1, 17),
        max_model_len=60,
        num_drafts=rng.choice([0, 0, 1, 3]),
        caching=rng.random() < 0.8,
        long_prefill=rng.choice([0, 3, 9]),
    )


def play(engine: Setup, workload: list[Arrival], crashes: set[int], resets: set[int]) -> dict[int, Transcript]:
    """Run a workload; return what the clients saw of requests that were not aborted."""
    h = Harness(engine)
    aborts: dict[int, int] = {}
    todo = sorted(enumerate(workload, start=1), key=lambda pair: pair[1].at)
    for step in range(3000):
        while todo and todo[0][1].at <= step:
            number, asked = todo.pop(0)
            domain = Domain(salt="other") if number % 5 == 0 else None
            message = message_of(number, asked, engine.max_model_len)
            h.add(msgspec.structs.replace(message, domain=domain))
            if asked.abort_at is not None:
                aborts[number] = step + asked.abort_at
        for number in [n for n, at in aborts.items() if at <= step]:
            del aborts[number]
            h.abort(number)
        if step in crashes:
            h.send()
            h.crash()
        if step in resets:
            h.core.reset_prefix_cache(running=step % 2 == 0)
            h.core.check()
        if not h.step() and not todo and not aborts:
            h.verify_all()
            return {number: h.seen[number] for number in h.requests}
    raise AssertionError("the workload does not end")


@pytest.mark.parametrize("chunk", range(-(-WORKLOADS // CHUNK)))
def test_trap_async_counters_any_window_gives_the_same(chunk: int) -> None:
    for number in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        rng = random.Random(number)
        engine = setup(rng)
        workload = [arrival(rng) for _ in range(rng.randrange(1, 10))]
        crashes = {rng.randrange(1, 60) for _ in range(rng.randrange(3))}
        resets = {rng.randrange(1, 60) for _ in range(rng.randrange(2))}
        windows = (1, 2 + number % 2)
        one, two = (play(replace(engine, window=window), workload, crashes, resets) for window in windows)
        assert one.keys() == two.keys()
        for request in one:
            seen = [(t.tokens, t.finish) for t in (one[request], two[request])]
            assert seen[0] == seen[1], f"workload {number}, request {request}"
