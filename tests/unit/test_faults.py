"""Faults on purpose: the grammar, and that nothing happens without it."""

from __future__ import annotations

import pytest

from octavo.errors import ConfigError
from octavo.faults import VARIABLE, Fault, Faults, InjectedFault


def find(text: str, who: str = "worker", rank: int | None = 0) -> Faults:
    return Faults.find(who, rank, {VARIABLE: text})


def test_there_are_none_by_default() -> None:
    assert not Faults.find("worker", 0, {})
    assert not find("engine:crash@step=1"), "of another process"


def test_conditions_must_all_hold() -> None:
    faults = find("worker:device_error@token=5,step=7,rank=0; worker:oom@step=9")
    faults.at(7, [1, 2])
    faults.at(8, [5])
    faults.at(7)
    with pytest.raises(InjectedFault, match="device error on purpose"):
        faults.at(7, [5])
    with pytest.raises(MemoryError):
        faults.at(9, [])
    find("worker:oom@rank=1").at(1, [1])


@pytest.mark.parametrize(
    "text",
    ["worker", "worker:crash", "worker:crash@", "worker:melt@step=1", "nobody:crash@step=1", "worker:crash@step=x",
     "worker:crash@step=1,step=2", "worker:crash@colour=1", "engine:crash@rank=1"],
)  # fmt: skip
def test_what_is_not_understood_is_refused_with_the_grammar(text: str) -> None:
    with pytest.raises(ConfigError, match=r"worker\|engine:crash\|hang\|device_error\|oom@CONDITION"):
        find(text)


def test_an_unknown_time_or_place_is_no_match() -> None:
    assert not Fault("engine", "crash", step=1).holds(None, [1], None)
    assert not Fault("engine", "crash", token=1).holds(1, None, None)
