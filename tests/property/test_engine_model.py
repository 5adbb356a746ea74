"""Random workloads over the engine core and the FakeWorker: outputs equal plain evaluation, whatever happens."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from octavo.wire.codec import pack_tokens
from octavo.wire.frontend import AddRequest, Grammar, RepetitionDetection, SamplingExtras, ThinkingBudget
from tests.engine.fake_grammar import FakeMatcher
from tests.engine.fake_worker import reference
from tests.engine.harness import Harness, Setup, request


@dataclass(frozen=True)
class Arrival:
    """One request of a workload."""

    at: int  # step
    shared: int  # tokens of a prefix that all requests share
    own: int  # tokens of its own
    max_tokens: int
    stop_after: int | None  # stops at its n-th token
    abort_at: int | None  # steps after arrival
    priority: int
    temperature: float
    replayed: int  # tokens that the client has already
    grammar: str | None
    extras: SamplingExtras | None


def packed(low: int = 0, high: int = 999, size: int = 3) -> st.SearchStrategy[bytes]:
    """Packed token ids."""
    return st.lists(st.integers(low, high), min_size=1, max_size=size).map(pack_tokens)


extras = st.builds(
    SamplingExtras,
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.5]),
    min_tokens=st.integers(0, 6),
    allowed_token_ids=st.just(b"") | packed(0, 3, 4),
    bad_words=st.lists(packed(10, 20, 2), max_size=2).map(tuple),
    logprobs=st.sampled_from([None, 0, 2]),
    prompt_logprobs=st.sampled_from([None, None, 0, 1]),
    repetition=st.none() | st.builds(RepetitionDetection, st.integers(1, 4), st.just(1), st.integers(2, 3)),
    thinking=st.none()
    | st.builds(
        ThinkingBudget,
        st.integers(0, 4),
        packed(0, 1, 1),
        st.just(pack_tokens([2, 900])),
        st.sampled_from([b"", pack_tokens([900])]),
    ),
    stream_interval=st.sampled_from([1, 1, 3, 100]),
)

arrivals = st.builds(
    Arrival,
    at=st.integers(0, 25),
    shared=st.sampled_from([0, 0, 7, 12, 13, 24, 30]),
    own=st.integers(0, 12),
    max_tokens=st.integers(1, 14),
    stop_after=st.none() | st.integers(1, 10),
    abort_at=st.none() | st.none() | st.integers(0, 12),
    priority=st.sampled_from([0, 0, 1]),
    temperature=st.sampled_from([0.0, 1.0]),
    replayed=st.sampled_from([0, 0, 0, 2, 5]),
    grammar=st.sampled_from([None, None, "7,2,9", "13,0,5", "3,20,20"]),
    extras=st.none() | extras,
)

setups = st.builds(
    Setup,
    spare_blocks=st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 8)),
    block_tokens=st.sampled_from([(4, 3, 6), (2, 4, 8), (5, 1, 3), (1, 2, 4), (4, 4, 4)]),
    max_num_seqs=st.integers(1, 6),
    budget=st.integers(1, 16),
    max_model_len=st.just(60),
    window=st.integers(1, 3),
    num_drafts=st.integers(0, 3),
    caching=st.booleans() | st.just(True),
    long_prefill=st.sampled_from([0, 0, 3, 9]),
    max_long=st.integers(1, 2),
)


def message_of(number: int, arrival: Arrival, max_model_len: int) -> AddRequest:
    """Return the request of an arrival; its stop id and what is replayed come from its plain evaluation."""
    prompt = [t % 7 for t in range(arrival.shared)] + [
        number * 3 + t for t in range(max(arrival.own, not arrival.shared))
    ]
    heat = arrival.temperature
    plain = request(number, prompt, arrival.max_tokens, temperature=heat, extras=arrival.extras)
    grammar = None if arrival.grammar is None else FakeMatcher.of(Grammar("fake", arrival.grammar))
    outputs, _ = reference(prompt, plain.sampling, max_model_len, grammar)
    stop = (outputs[arrival.stop_after - 1],) if arrival.stop_after and arrival.stop_after <= len(outputs) else ()
    whole = request(number, prompt, arrival.max_tokens, stop=stop, temperature=heat, extras=arrival.extras)
    grammar = None if arrival.grammar is None else FakeMatcher.of(Grammar("fake", arrival.grammar))
    outputs, _ = reference(prompt, whole.sampling, max_model_len, grammar)
    emitted = tuple(outputs[: arrival.replayed])
    return request(
        number,
        prompt,
        arrival.max_tokens,
        stop=stop,
        emitted=emitted,
        attempt=1 + bool(emitted),
        priority=arrival.priority,
        temperature=arrival.temperature,
        grammar=arrival.grammar,
        extras=arrival.extras,
    )


@given(
    setup=setups,
    workload=st.lists(arrivals, min_size=1, max_size=9),
    crashes=st.lists(st.integers(1, 60), max_size=3),
    greedy_sends=st.booleans(),
)
def test_trap_grammar_and_drafts_outputs_equal_plain_evaluation(
    setup: Setup, workload: list[Arrival], crashes: list[int], greedy_sends: bool
) -> None:
    h = Harness(setup)
    aborts: dict[int, int] = {}
    todo = sorted(enumerate(workload, start=1), key=lambda pair: pair[1].at)
    for step in range(3000):
        while todo and todo[0][1].at <= step:
            number, arrival = todo.pop(0)
            h.add(message_of(number, arrival, setup.max_model_len))
            if arrival.abort_at is not None:
                aborts[number] = step + arrival.abort_at
        for number in [n for n, at in aborts.items() if at <= step]:
            del aborts[number]
            h.abort(number)
        if step in crashes:
            if greedy_sends:
                h.send()
            h.crash()
        if not h.step() and not todo and not aborts:
            break
    else:
        raise AssertionError("the workload does not end")
    h.verify_all()


@given(setup=setups, lengths=st.lists(st.integers(1, 30), min_size=1, max_size=5), max_tokens=st.integers(1, 10))
def test_each_token_is_computed_once(setup: Setup, lengths: list[int], max_tokens: int) -> None:
    """Without preemption: prompts less prefix hits, and all outputs but the last, which nobody needs the KV of.

    A window of n plans computes up to n - 1 tokens more for a request that ended while its next rows were in flight.
    """
    h = Harness(setup)
    for number, length in enumerate(lengths, start=1):
        h.add(request(number, [number] * length, max_tokens))
    h.run()
    h.verify_all()
    stats = h.core.stats(0)
    least = sum(lengths) + sum(len(h.seen[n].tokens) - 1 for n in h.requests) - stats.prefix_hits
    if stats.preemptions == 0 and setup.window == 1 and setup.num_drafts == 0:
        assert h.computed_tokens == least
    elif stats.preemptions == 0 and setup.num_drafts == 0:
        assert least <= h.computed_tokens <= least + len(lengths) * max(1, setup.window - 1)
    else:
        assert h.computed_tokens >= least
