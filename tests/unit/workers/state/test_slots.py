from __future__ import annotations

import numpy as np
import pytest
import torch

from octavo.errors import ProtocolError
from octavo.kernels.ref.state import RefState
from octavo.wire.codec import pack_tokens
from octavo.wire.frontend import SamplingParams
from octavo.wire.worker import NewRow
from octavo.workers.state.slots import Slots


def row(slot: int, tokens: list[int], computed: int = 0, generation: int = 1) -> NewRow:
    return NewRow(slot, generation, pack_tokens(tokens), len(tokens), computed, SamplingParams(0, 1))


def slots() -> Slots:
    return Slots(3, 8, RefState(), "cpu")


def test_a_slot_keeps_tokens_and_counters() -> None:
    s = slots()
    s.take(row(1, [5, 6, 7], computed=2, generation=9))
    s.apply()
    assert s.tokens[1, :3].tolist() == [5, 6, 7]
    assert (s.length[1], s.computed[1], s.generation[1]) == (3, 2, 9)
    which = np.array([1])
    s.advance(which, np.array([1]))
    s.append(which, torch.tensor([1]), torch.tensor([42]))
    assert s.tokens[1, :4].tolist() == [5, 6, 7, 42]
    assert (s.length[1], s.computed[1]) == (4, 3)
    assert s.lengths.tolist() == [0, 4, 0]
    s.check()


def test_a_slot_can_be_taken_again() -> None:
    s = slots()
    s.take(row(0, [1, 2, 3, 4]))
    s.apply()
    s.release([0])
    s.take(row(0, [9], generation=2))
    s.apply()
    assert s.tokens[0, 0] == 9
    assert (s.length[0], s.generation[0]) == (1, 2)
    s.check()


def test_plans_that_do_not_fit_are_refused() -> None:
    s = slots()
    s.take(row(0, [1]))
    with pytest.raises(ProtocolError, match="slot 0 to be free"):
        s.take(row(0, [1]))
    with pytest.raises(ProtocolError, match="slot 2 to be taken"):
        s.release([2])
    with pytest.raises(ProtocolError, match="slot 3 to be free"):
        s.take(row(3, [1]))
    with pytest.raises(ProtocolError, match="slot 1: 2 computed of 2 tokens"):
        s.take(row(1, [1, 2], computed=2))
    with pytest.raises(ProtocolError, match="slot 1: 0 computed of 9 tokens"):
        s.take(row(1, list(range(9))))


def test_check_finds_a_broken_counter() -> None:
    s = slots()
    s.take(row(0, [1]))
    s.computed[0] = 2
    with pytest.raises(AssertionError):
        s.check()
