"""Where the model of an engine stands: may requests run, what sleeps, is a weight update under way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from octavo.wire.frontend import ModelState as WireState

if TYPE_CHECKING:
    from octavo.engine_core.journal import Journal

__all__ = ["KV_CACHE", "SCHEDULING", "TAGS", "WEIGHTS", "ModelState", "Session"]

WEIGHTS, KV_CACHE, SCHEDULING = "weights", "kv_cache", "scheduling"
#: What can sleep.
TAGS = frozenset({WEIGHTS, KV_CACHE, SCHEDULING})


@dataclass(slots=True)
class Session:
    """A weight update that was started and not finished."""

    updates: int = 0


class ModelState:
    """Changed by operations alone; what outlives the process is in the journal."""

    def __init__(self, journal: Journal) -> None:
        """Begin where the journal ends."""
        self.journal = journal
        self.paused = journal.paused
        self.asleep = frozenset(journal.asleep.tags)
        self.draining: str | None = None  # the mode of a pause whose end is not reached yet
        self.problem = ""  # why no request can run although nobody paused the engine
        self.backend: str | None = None  # the description of the transfer that the workers are ready for
        self.session: Session | None = None

    @property
    def may_schedule(self) -> bool:
        """Whether plans may go to the workers."""
        if self.asleep or self.problem:
            return False
        return self.draining == "wait" if self.draining is not None else not self.paused

    @property
    def holds_new(self) -> bool:
        """Whether requests that come now wait outside of the scheduler."""
        return bool(self.paused or self.asleep or self.problem or self.draining is not None)

    @property
    def is_paused(self) -> bool:
        """Whether somebody said that nothing is to be scheduled."""
        return self.paused or SCHEDULING in self.asleep

    def workers_gone(self) -> None:
        """Forget what the workers of before knew."""
        self.backend = self.session = None

    def wire(self) -> WireState:
        """Return it as the frontend sees it."""
        if self.asleep:
            name = "sleeping"
        elif self.paused:
            name = "paused"
        else:
            name = "unusable" if self.problem else "running"
        return WireState(self.journal.weight_version, name, self.problem)

    def check(self) -> None:
        """Raise AssertionError if an invariant does not hold."""
        assert self.asleep <= TAGS
        assert self.session is None or (self.is_paused and self.backend is not None and WEIGHTS not in self.asleep)
