"""Traps that engines fall into, each with the test that it was named for here, and a table of all.

The table is for whoever changes the engine: what breaks which trap is found here first.
"""

from __future__ import annotations

import importlib.util
import re
from array import array
from pathlib import Path

import pytest

from octavo.engine_core.sched.draft import StepDraft
from octavo.engine_core.sched.preemption import preempt
from tests.engine.fake_worker import WINDOW, reference
from tests.engine.harness import Harness, Setup, request

ROOT = Path(__file__).resolve().parents[2]

_HERE = "tests/engine/test_traps.py::test_trap_"
_UNIT = "tests/unit/engine_core/"

#: Trap -> where it is tested: a file, and "::name", in which "trap_" and the trap stand. Those of adapters, media and
#: offloading come with what brings them; int32 overflow and buffers that the host overwrites need a GPU's memory.
TRAPS = {
    "batch_variance": "tests/parity/test_tiny_llama.py::test_trap_batch_variance_schedules_change_no_token",
    "greedy_parity": "tests/parity/test_smollm2.py::test_trap_greedy_parity_staggered_with_shared_prefixes",
    "nobody_owns_the_null_block": _HERE + "nobody_owns_the_null_block",  # NaN from padded rows
    "logprobs": "tests/kernels/test_logits.py::test_trap_logprobs_and_ranks",
    "prefix_keys": _UNIT
    + "cache/test_domain.py::test_kv01_trap_prefix_keys_of_different_kinds_and_borders_give_different_roots",
    "a_full_hit": _HERE + "a_full_hit_leaves_a_token_to_compute",  # last token
    "two_that_compute": _HERE + "two_that_compute_one_prefix_keep_their_blocks",  # duplicate blocks
    "a_resumed_request": _HERE + "a_resumed_request_keeps_its_prompt_length",  # preemption and penalties
    "preemption_in_flight": _UNIT
    + "sched/test_scheduler.py::test_trap_preemption_in_flight_a_row_of_an_earlier_life_is_not_applied",
    "async_counters": "tests/property/test_windows.py::test_trap_async_counters_any_window_gives_the_same",
    "blocks_of_an_ended_request": _HERE + "blocks_of_an_ended_request_wait_for_its_zombie_row",
    "stop_strings": "rust_frontend/http/tests/answers.rs::trap_stop_strings_over_many_tokens_end_the_request",
    "min_tokens": "tests/kernels/test_logits.py::test_sp10_trap_min_tokens_masks_all_end_tokens",
    "nothing_is_computed": _HERE + "nothing_is_computed_beyond_the_limit",  # ignore_eos, max_model_len
    "grammar_and_drafts": "tests/property/test_engine_model.py"
    "::test_trap_grammar_and_drafts_outputs_equal_plain_evaluation",
    "noise": _HERE + "noise_does_not_know_neighbours_or_restarts",  # seeds
    "ties": "tests/kernels/test_sample.py::test_trap_ties_kept_sets_are_those_of_transformers",
    "windows_at_their_edges": _HERE + "windows_at_their_edges",
    "rope_variants": "tests/unit/layers/test_rope.py::test_trap_rope_variants_tables_are_those_of_transformers",
    "padded_vocabulary": "tests/unit/layers/test_sharding.py"
    "::test_trap_padded_vocabulary_looks_up_and_scores_like_a_whole_one",
    "nobody_imports": _HERE + "nobody_imports_our_kernels_by_accident",
}


def test_every_trap_has_its_test() -> None:
    for trap, place in TRAPS.items():
        path, _, name = place.partition("::")
        assert f"trap_{trap}" in name
        assert re.search(rf"\bfn {name}\b|\bdef {name}\b", (ROOT / path).read_text(encoding="utf-8")), place


def test_trap_nobody_owns_the_null_block() -> None:
    h = Harness(Setup(max_model_len=60, spare_blocks=(2, 2, 2)))
    for number in range(1, 7):
        h.add(request(number, [number] * 17, 12))
    seen: set[int] = set()
    while h.send():
        for diff in h.plans[-1].blocks:
            if diff.group == 0:
                seen |= set(array("i", diff.ids))
        h.receive()
    assert 0 not in seen, "in a full group every entry is a real block"
    h.verify_all()


@pytest.mark.parametrize("length", [12, 13, 24])
def test_trap_a_full_hit_leaves_a_token_to_compute(length: int) -> None:
    """Also KV04: a shorter, an equal and a longer prompt after one that is cached."""
    h = Harness(Setup())
    for number, tokens in ((1, length), (2, length), (3, length - 5), (4, length + 5), (5, 1)):
        h.add(request(number, list(range(tokens)), 4))
        h.run()
        cached = h.seen[number].cached
        assert cached is not None
        assert cached < tokens
    h.verify_all()


def test_trap_two_that_compute_one_prefix_keep_their_blocks() -> None:
    h = Harness(Setup(budget=64))
    prompt = list(range(25))
    h.add(request(1, prompt, 6))
    h.step()
    state = h.core._scheduler._state
    state.computing.clear()  # as if the second had come before anybody knew
    h.core._scheduler.cache.reset([])
    h.add(request(2, prompt, 6))
    h.run()
    h.verify_all()
    h.add(request(3, prompt, 6))
    h.run()
    assert h.seen[3].cached == 24, "one of the two is found"
    h.verify_all()


def test_trap_a_resumed_request_keeps_its_prompt_length() -> None:
    h = Harness(Setup(caching=False))
    h.add(request(1, [1] * 7, 9))
    for _ in range(4):
        h.step()
    emitted = len(h.seen[1].tokens)
    state = h.core._scheduler._state
    preempt(state, StepDraft(0), next(iter(state.running)))
    h.send()
    row = h.plans[-1].new[0]
    assert (row.prompt_len, len(row.tokens) // 4) == (7, 7 + emitted)
    h.run()
    h.verify_all()


def test_trap_blocks_of_an_ended_request_wait_for_its_zombie_row() -> None:
    """It draws its stop id while its next row is under way: that row still writes, then the blocks are free."""
    prompt = [5] * 9
    outputs, _ = reference(prompt, request(1, prompt, 9).sampling, 400)
    h = Harness(Setup(window=2))
    h.add(request(1, prompt, 9, stop=(outputs[2],)))
    while h.seen[1].finish is None:
        while h.send():
            pass
        h.receive()
    stats = h.core.stats(0)
    assert (stats.running, len(h.plans)) == (0, 1), "the zombie is in flight"
    assert stats.free_blocks < stats.total_blocks
    h.receive()
    h.verify_all()


@pytest.mark.parametrize("drafts", [0, 3])
@pytest.mark.parametrize("window", [1, 2])
def test_trap_nothing_is_computed_beyond_the_limit(drafts: int, window: int) -> None:
    """Also CL02: a prompt and its answer fill the context to the last token, never one more."""
    h = Harness(Setup(max_model_len=40, window=window, num_drafts=drafts))
    for number, length in ((1, 30), (2, 39), (3, 33)):
        h.add(request(number, [number] * length, 100))
    h.run()
    assert [len(h.seen[n].tokens) for n in (1, 2, 3)] == [10, 1, 7]
    assert {h.seen[n].finish for n in (1, 2, 3)} == {"length"}
    h.verify_all()


def test_trap_noise_does_not_know_neighbours_or_restarts() -> None:
    def outputs(others: int, crash: bool) -> list[int]:
        h = Harness(Setup(budget=20))
        h.add(request(7, [3, 1, 4], 12, temperature=1.0))
        for number in range(20, 20 + others):
            h.add(request(number, [number] * 9, 12, temperature=1.0))
        for _ in range(4):
            h.step()
        if crash:
            h.crash()
        h.run()
        h.verify_all()
        return h.seen[7].tokens

    assert outputs(0, False) == outputs(5, False) == outputs(5, True)


@pytest.mark.parametrize("length", [WINDOW - 1, WINDOW, WINDOW + 1])
@pytest.mark.parametrize("window", [1, 2])
def test_trap_windows_at_their_edges(length: int, window: int) -> None:
    h = Harness(Setup(block_tokens=(4, 1, 4), window=window, budget=3))
    h.add(request(1, list(range(length)), 8))
    h.add(request(2, list(range(length)), 8))
    h.run()
    h.verify_all()


def test_trap_nobody_imports_our_kernels_by_accident() -> None:
    """Transformers looks for a package of this name and would import ours."""
    for name in ("kernels", "workers", "engine_core"):
        spec = importlib.util.find_spec(name)
        assert spec is None or "octavo" not in str(spec.origin), name


def test_kv09_no_hit_on_what_was_evicted() -> None:
    h = Harness(Setup(max_model_len=100, spare_blocks=(10, 60, 60), block_tokens=(4, 4, 4)))
    prompt = list(range(61))
    answers = set()
    for round_ in range(5):
        for repeat in range(2):
            h.add(request(round_ * 10 + repeat + 1, prompt, 4))
            h.run()
            answers.add(tuple(h.seen[round_ * 10 + repeat + 1].tokens))
        assert h.seen[round_ * 10 + 2].cached == 60
        for number in range(3, 7):
            h.add(request(round_ * 10 + number, [200 + round_ * 10 + number] * 80, 4))
        h.run()
    assert len(answers) == 1
    h.verify_all()


def test_ab04_aborts_before_the_first_row_and_after_the_end() -> None:
    h = Harness(Setup(max_num_seqs=1))
    h.add(request(1, [1] * 5, 6))
    h.add(request(2, [2] * 5, 6))
    h.step()
    h.abort(2)
    h.run()
    h.verify_all()
    h.core.abort([1, 1, 2, 999])
    h.verify_empty()


def test_kv03_equal_keys_need_equal_tokens() -> None:
    """The keys are 128 bits of BLAKE3 over all tokens so far: no two prompts of this many meet."""
    h = Harness(Setup())
    keys = {}
    for number in range(300):
        chains = h.core._scheduler.cache.open_chains(None)
        tokens = array("i", [number % 17, number // 17, *range(10)])
        for chain in chains.values():
            chain.extend(tokens)
            for index in range(len(chain)):
                prefix = tuple(tokens[: (index + 1) * chain.block_tokens])
                assert keys.setdefault((chain.block_tokens, chain[index]), prefix) == prefix
                assert len(chain[index]) * 8 >= 128
