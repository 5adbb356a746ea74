"""Faults on purpose, for tests: OCTAVO_FAULTS says who fails how, and when. Off when it is not set.

    OCTAVO_FAULTS="worker:crash@token=666; engine:hang@step=40; worker:device_error@step=7,rank=1"

A clause is WHO:WHAT@CONDITION[,CONDITION]. WHO is `worker` or `engine`. WHAT is

    crash         the process dies at once, as by SIGKILL
    hang          it stands still for ever
    device_error  the step raises, as after an error of a device
    oom           the step raises, as when memory is out

Conditions, all of which must hold: `token=N`: a request whose prompt holds N comes to be computed (worker) or arrives
(engine); `step=N`: plan N is next; `rank=N`: of the worker. Steps count on over restarts of workers, so that a fault
at a step happens once in the life of an engine core; one at a token happens each time.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from octavo.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["VARIABLE", "Fault", "Faults", "InjectedFault", "strike"]

VARIABLE = "OCTAVO_FAULTS"
_WHO = ("worker", "engine")
_WHAT = ("crash", "hang", "device_error", "oom")
_CONDITIONS = ("token", "step", "rank")


class InjectedFault(RuntimeError):
    """An error that was asked for."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One clause."""

    who: str
    what: str
    token: int | None = None
    step: int | None = None
    rank: int | None = None

    def holds(self, step: int | None, tokens: Collection[int] | None, rank: int | None) -> bool:
        """Tell whether all conditions hold; None: not known here, so that a condition on it does not."""
        return (
            (self.step is None or self.step == step)
            and (self.token is None or (tokens is not None and self.token in tokens))
            and (self.rank is None or self.rank == rank)
        )


class Faults:
    """The faults of one kind of process. Empty, and false, when there are none."""

    def __init__(self, faults: tuple[Fault, ...], rank: int | None = None) -> None:
        self._faults = faults
        self._rank = rank

    def __bool__(self) -> bool:
        return bool(self._faults)

    @classmethod
    def find(cls, who: str, rank: int | None = None, environ: Mapping[str, str] = os.environ) -> Faults:
        """Read the environment. Raises ConfigError that shows the grammar."""
        faults = tuple(_parse(text) for text in environ.get(VARIABLE, "").split(";") if text.strip())
        return cls(tuple(fault for fault in faults if fault.who == who), rank)

    def at(self, step: int | None = None, tokens: Collection[int] | None = None) -> None:
        """Do what is asked for here and now; usually nothing. May not return."""
        for fault in self._faults:
            if fault.holds(step, tokens, self._rank):
                strike(fault)


def strike(fault: Fault) -> None:
    """Fail. Raises InjectedFault or MemoryError, ends the process, or never returns."""
    if fault.what == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault.what == "oom":
        raise MemoryError(f"{VARIABLE}: out of memory on purpose")
    if fault.what == "device_error":
        raise InjectedFault(f"{VARIABLE}: device error on purpose")
    while True:
        time.sleep(3600)


def _parse(text: str) -> Fault:
    who, _, rest = text.strip().partition(":")
    what, _, conditions = rest.partition("@")
    values: dict[str, int] = {}
    for condition in conditions.split(","):
        name, _, value = condition.strip().partition("=")
        if name not in _CONDITIONS or not value.isdecimal() or name in values:
            raise _wrong(text)
        values[name] = int(value)
    if who not in _WHO or what not in _WHAT or (who == "engine" and "rank" in values):
        raise _wrong(text)
    return Fault(who, what, **values)


def _wrong(text: str) -> ConfigError:
    return ConfigError(
        f"{VARIABLE} has the clause {text.strip()!r}; expected {'|'.join(_WHO)}:{'|'.join(_WHAT)}@CONDITION"
        f"[,CONDITION] with {', '.join(f'{name}=N' for name in _CONDITIONS)}",
        VARIABLE,
    )
