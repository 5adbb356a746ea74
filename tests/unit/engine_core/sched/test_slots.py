"""Slots and their generations."""

from __future__ import annotations

from array import array

import pytest

from octavo.engine_core.sched.slots import Slots


def test_each_owner_has_a_later_generation() -> None:
    slots = Slots(1)
    assert slots.take() == (0, 1)
    slots.release(0)
    assert slots.take() == (0, 2)
    with pytest.raises(IndexError):
        slots.take()


def test_workers_learn_of_a_release_once() -> None:
    slots = Slots(2)
    slots.take()
    slots.release(0)
    with pytest.raises(ValueError, match="free already"):
        slots.release(0)
    assert slots.take_released() == array("i", [0]).tobytes()
    assert slots.take_released() == b""
