"""Start children in order, restart them by policy, stop them in reverse order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anyio.abc import TaskStatus

    from octavo.actors.actor import Child

__all__ = ["ChildExit", "ChildSpec", "Restart", "RestartLimit", "Strategy", "Supervisor", "Verdict"]


class Restart(Enum):
    """When a child that ended is started again."""

    PERMANENT = "always"
    TRANSIENT = "when it raised"
    TEMPORARY = "never"


class Strategy(Enum):
    """Who is restarted with a child."""

    ONE_FOR_ONE = "it alone"
    ONE_FOR_ALL = "all children: they share its fate"


class Verdict(Enum):
    """What an owner may decide about an exit instead of the policy."""

    RESTART = "restart, within the limit"
    RESTART_UNCOUNTED = "restart; does not count toward the limit and has no back-off"
    GIVE_UP = "end the supervisor with ChildrenFailed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """A child and how to treat it."""

    name: str
    factory: Callable[[], Child]  # a new child for each start
    restart: Restart = Restart.PERMANENT
    grace_s: float = 5.0  # from `stop` to cancellation


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartLimit:
    """Restart intensity: more than `max_restarts` within `window_s` and the supervisor gives up.

    The n-th restart within the window waits min(backoff_s * 2**(n-1), backoff_max_s).
    """

    max_restarts: int = 5
    window_s: float = 600.0
    backoff_s: float = 0.1
    backoff_max_s: float = 10.0


@dataclass(frozen=True, slots=True)
class ChildExit:
    """A child ended without having been asked to."""

    name: str
    error: Exception | None  # None: `run` returned


class Supervisor:
    """Look after children. Itself a `Child`, so supervisors nest; runs once.

    - Children start one after the other; each is ready before the next starts. If one ends before it was ready in this
      first round, the supervisor gives up: nothing has been served yet, and the reason should be read now.
    - A child that ends later is restarted by policy, verdict and limit. Under ONE_FOR_ALL the others are cancelled, in
      reverse order, before all start again: what they hold is worthless, so they are not asked to finish it.
    - To stop, children are asked in reverse order, each has its grace, then is cancelled. Also when `run` is cancelled.
    """

    def __init__(
        self,
        name: str,
        specs: Sequence[ChildSpec],
        *,
        strategy: Strategy = Strategy.ONE_FOR_ONE,
        limit: RestartLimit | None = None,
        on_exit: Callable[[ChildExit], Verdict | None] = lambda exit: None,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        """Keep the arguments.

        limit: None means RestartLimit().
        on_exit: called at once for every exit that nobody asked for, before anything is cancelled or restarted, so that
            the owner can put running work back; may overrule the policy. Under ONE_FOR_ALL only the first of a group's
            exits is reported, because the others are consequences.
        on_ready: called when all children are ready: after the first start and after every restart.
        """
        self.name = name
        raise NotImplementedError

    @property
    def restarts(self) -> int:
        """How many restarts there were."""
        raise NotImplementedError

    def stop(self) -> None:
        """Ask the children to stop; `run` returns when they have. See `Child.stop`."""
        raise NotImplementedError

    async def run(self, *, task_status: TaskStatus[Any] = anyio.TASK_STATUS_IGNORED) -> None:
        """Start the children, report started when all are ready, look after them.

        Returns after `stop`, or when no child is left that would be restarted. Raises ChildrenFailed, with the causes;
        all children have ended by then.
        """
        raise NotImplementedError
