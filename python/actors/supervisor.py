"""Start children in order, restart them by policy, stop them in reverse order."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskStatus

from octavo.actors.errors import ActorError, ChildrenFailed
from octavo.actors.mailbox import Mailbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from anyio.abc import TaskGroup

    from octavo.actors.actor import Child

__all__ = ["ChildExit", "ChildSpec", "Restart", "RestartLimit", "Strategy", "Supervisor", "Verdict"]

log = logging.getLogger(__name__)


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
        """Keep the arguments; the names of `specs` must differ.

        limit: None means RestartLimit().
        on_exit: called at once for every exit that nobody asked for, before anything is cancelled or restarted, so that
            the owner can put running work back; may overrule the policy. Under ONE_FOR_ALL only the first of a group's
            exits is reported, because the others are consequences.
        on_ready: called when all children are ready: after the first start and after every restart.
        """
        self.name = name
        self._specs = tuple(specs)
        assert len({spec.name for spec in specs}) == len(specs), "two children of one name"
        self._strategy = strategy
        self._limit = limit or RestartLimit()
        self._on_exit = on_exit
        self._on_ready = on_ready
        self._lives: dict[str, _Life] = {}  # in the order of start
        self._exits: Mailbox[_Life] = Mailbox(2 * len(self._specs))
        self._counted: list[tuple[float, ChildExit]] = []
        self._restarts = 0
        self._until_stop = anyio.CancelScope()
        self._group: TaskGroup

    @property
    def restarts(self) -> int:
        """How many restarts there were."""
        return self._restarts

    def stop(self) -> None:
        """Ask the children to stop; `run` returns when they have. See `Child.stop`."""
        self._until_stop.cancel()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Start the children, report started when all are ready, look after them.

        Returns after `stop`, or when no child is left that would be restarted. Raises ChildrenFailed, with the causes;
        all children have ended by then.
        """
        failure: Exception | None = None
        async with anyio.create_task_group() as self._group:
            try:
                with self._until_stop:
                    await self._look_after(task_status)
                await self._stop_children()
            except Exception as error:
                failure = error
                await self._stop_children()
            finally:
                with anyio.CancelScope(shield=True):
                    await self._cancel_children()
        if failure is not None:
            raise failure

    def check(self) -> None:
        """Assert the invariants."""
        assert set(self._lives) <= {spec.name for spec in self._specs}
        assert len(self._counted) <= self._limit.max_restarts + 1
        self._exits.check()

    async def _look_after(self, task_status: TaskStatus[None]) -> None:
        await self._start(self._specs)
        self._require_ready()
        task_status.started()
        self._announce()
        while self._lives:
            await self._react(await self._exits.get())

    def _require_ready(self) -> None:
        for life in self._lives.values():
            if life.ended.is_set() and not life.ready and self._policy(life.exit) is not None:
                raise ChildrenFailed(
                    f"{self.name}: {_why(life.exit)} before it was ready", _causes([life.exit])
                ) from life.exit.error

    async def _start(self, specs: Sequence[ChildSpec]) -> None:
        """Start children one after the other; stop at the first that ends before it is ready (its exit is queued)."""
        for spec in specs:
            life = self._lives[spec.name] = _Life(spec, self._exits.put_nowait)
            self._group.start_soon(life.run, name=f"{self.name}/{spec.name}")
            await life.settled.wait()
            if life.ended.is_set() and not life.ready and self._policy(life.exit) is not None:
                return

    def _announce(self) -> None:
        """Tell the owner that all are ready, unless one has ended again."""
        if not len(self._exits):
            self._on_ready()

    async def _react(self, life: _Life) -> None:
        """Do what follows from an exit: nothing, a restart, or ChildrenFailed."""
        verdict = self._on_exit(life.exit) or self._policy(life.exit)
        level = {None: logging.INFO, Verdict.GIVE_UP: logging.DEBUG}.get(verdict, logging.ERROR)  # given up: raised
        log.log(level, "%s: %s", self.name, _why(life.exit))
        if verdict is None:
            del self._lives[life.spec.name]
            return
        if verdict is Verdict.GIVE_UP:
            raise ChildrenFailed(
                f"{self.name}: {_why(life.exit)}; it is not restarted", _causes([life.exit])
            ) from life.exit.error
        delay_s = self._count(life.exit) if verdict is Verdict.RESTART else 0.0
        await self._restart(life, delay_s)

    def _policy(self, exit: ChildExit) -> Verdict | None:
        restart = next(spec.restart for spec in self._specs if spec.name == exit.name)
        if restart is Restart.PERMANENT or (restart is Restart.TRANSIENT and exit.error is not None):
            return Verdict.RESTART
        return None

    def _count(self, exit: ChildExit) -> float:
        """Count a restart and return its back-off in seconds. Raises ChildrenFailed beyond the limit."""
        now, limit = anyio.current_time(), self._limit
        recent = [(at, exit) for at, exit in self._counted if now - at < limit.window_s]
        self._counted = [*recent, (now, exit)]
        count = len(self._counted)
        if count > limit.max_restarts:
            raise ChildrenFailed(
                f"{self.name}: {count} failures in {limit.window_s:g} s, of which {limit.max_restarts} are allowed; "
                f"the last: {_first_line(_why(exit))}",  # each was logged with what the child had said
                _causes(exit for _, exit in self._counted),
                exhausted=True,
            ) from exit.error
        return min(limit.backoff_s * 2.0 ** min(count - 1, 60), limit.backoff_max_s)

    async def _restart(self, life: _Life, delay_s: float) -> None:
        self._restarts += 1
        specs: Sequence[ChildSpec] = (life.spec,)
        if self._strategy is Strategy.ONE_FOR_ALL:
            specs = [spec for spec in self._specs if spec.name in self._lives]
            await self._cancel_children()
            self._exits.clear()
        await anyio.sleep(delay_s)
        await self._start(specs)
        self._announce()

    async def _stop_children(self) -> None:
        """Ask the children to stop, one after the other, the last started first; cancel those that take too long."""
        for life in reversed([life for life in self._lives.values() if not life.ended.is_set()]):
            life.stop()
            with anyio.move_on_after(life.spec.grace_s):
                await life.ended.wait()
            if not life.ended.is_set():
                log.warning("%s: %s did not stop within %g s", self.name, life.spec.name, life.spec.grace_s)
                life.cancel()
                await life.ended.wait()

    async def _cancel_children(self) -> None:
        """Cancel the children, the last started first, and wait until all have ended."""
        for life in reversed(self._lives.values()):
            life.cancel()
        for life in self._lives.values():
            await life.ended.wait()


class _Life(TaskStatus[Any]):
    """One child from one start to its end. Only `cancel` can interrupt it, so that children end in order."""

    def __init__(self, spec: ChildSpec, report: Callable[[_Life], None]) -> None:
        self.spec = spec
        self.ready = False
        self.settled = anyio.Event()  # ready or ended
        self.ended = anyio.Event()
        self._report = report
        self._asked = False  # to stop, or cancelled: its end is no exit to react to
        self._child: Child | None = None
        self._error: Exception | None = None
        self._scope = anyio.CancelScope(shield=True)

    @property
    def exit(self) -> ChildExit:
        return ChildExit(self.spec.name, self._error)

    def started(self, value: Any = None) -> None:
        self.ready = True
        self.settled.set()

    async def run(self) -> None:
        try:
            with self._scope:
                if not self._asked:
                    self._child = self.spec.factory()
                    await self._child.run(task_status=self)
        except Exception as error:
            self._error = error
        finally:
            self._end()

    def stop(self) -> None:
        self._asked = True
        if self._child is not None:
            self._child.stop()

    def cancel(self) -> None:
        self._asked = True
        self._scope.cancel()

    def _end(self) -> None:
        self.ended.set()
        self.settled.set()
        if not self._asked:
            self._report(self)
        elif self._error is not None:
            log.warning("%s while stopping", _why(self.exit))


def _why(exit: ChildExit) -> str:
    if exit.error is None:
        return f"{exit.name} ended"
    if isinstance(exit.error, ActorError):  # names the actor
        return exit.error.message
    return f"{exit.name} failed: {type(exit.error).__name__}: {exit.error}"


def _first_line(text: str) -> str:
    return text.partition("\n")[0].rstrip(" :;")


def _causes(exits: Iterable[ChildExit]) -> list[Exception]:
    return [exit.error for exit in exits if exit.error is not None]
