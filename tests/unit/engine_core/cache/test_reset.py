"""Reset of the prefix cache, and what others are told of it."""

from __future__ import annotations

from array import array

from octavo.engine_core.cache.block_hash import BlockHashes
from octavo.engine_core.cache.domain import Base, domain_root
from octavo.engine_core.cache.events import AllBlocksCleared, BlockRemoved, BlockStored, KvEventLog
from octavo.engine_core.cache.group import Flight, Span
from octavo.engine_core.cache.layout import build_cache, group_layers
from octavo.wire.worker import KvSpec, KvTensor
from tests.engine.harness import Harness, Setup, request

BASE = Base("m", "float32")
FULL = group_layers((KvSpec(0, "full", (KvTensor("k", (1,), "float32"),)),), {"full": 4})


def test_nothing_is_found_after_a_reset_and_running_requests_go_on() -> None:
    h = Harness(Setup(window=2))
    prompt = list(range(40))
    h.add(request(1, prompt, 30))
    h.add(request(2, [7] * 20, 30))
    for _ in range(5):
        h.step()
    h.send()
    h.core.reset_prefix_cache(running=False)
    h.core.check()
    h.add(request(3, prompt, 3))
    h.run()
    assert h.seen[3].cached == 0
    h.verify_all()
    h.add(request(4, prompt, 3))
    h.run()
    assert h.seen[4].cached == 36, "what came after the reset is found"
    assert h.core.stats(0).preemptions == 0


def test_with_running_requests_all_is_computed_anew() -> None:
    h = Harness(Setup(window=2))
    for number in (1, 2):
        h.add(request(number, [number] * 20, 30))
    for _ in range(5):
        h.step()
    h.send()
    h.core.reset_prefix_cache(running=True)
    h.core.check()
    assert (h.core.stats(0).running, h.core.stats(0).waiting) == (0, 2)
    hits = h.core.stats(0).prefix_hits
    h.run()
    assert h.core.stats(0).prefix_hits == hits
    assert h.core.stats(0).preemptions == 2
    h.verify_all()


def test_events_tell_what_can_be_found() -> None:
    log = KvEventLog("CPU")
    cache = build_cache(FULL, [6], Flight(1, 64, 1), BASE, log)
    tokens = array("i", range(10))
    chains = cache.open_chains(None)
    cache.longest_hit(chains, tokens)
    tables = cache.open(chains, 0)
    assert cache.extend(tables, Span(0, 10, 10))
    cache.advance(tables, chains, tokens, 10)
    chain = BlockHashes(domain_root(BASE, None), 4)
    chain.extend(tokens)
    first, second = chain[0], chain[1]
    stored = BlockStored((first, second), None, tuple(range(8)), 4, medium="CPU")
    assert log.take() == [stored]
    cache.close(tables, None)

    other = array("i", range(90, 108))
    others = cache.open_chains(None)
    assert cache.longest_hit(others, other) == 0
    tables = cache.open(others, 0)
    assert cache.extend(tables, Span(0, 18, 18))
    assert log.take() == [BlockRemoved((second, first), "CPU")]
    cache.advance(tables, others, other[:9], 9)
    cache.advance(tables, others, other, 18)
    events = log.take()
    assert [type(event) for event in events] == [BlockStored, BlockStored]
    assert isinstance(events[0], BlockStored)
    assert isinstance(events[1], BlockStored)
    assert events[1].parent_block_hash == events[0].block_hashes[-1]
    cache.reset([tables])
    assert log.take() == [AllBlocksCleared()]


def test_kv10_a_fresh_salt_is_an_opt_out() -> None:
    from octavo.wire.frontend import Domain

    h = Harness(Setup())
    for number in (1, 2, 3):
        h.add(request(number, [5] * 30, 3, domain=Domain(salt=f"fresh {number}")))
        h.run()
    h.verify_all()
    assert [h.seen[number].cached for number in (1, 2, 3)] == [0, 0, 0]
