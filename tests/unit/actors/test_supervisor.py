from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from octavo.actors.errors import ChildrenFailed
from octavo.actors.supervisor import ChildExit, ChildSpec, Restart, RestartLimit, Strategy, Supervisor, Verdict
from octavo.errors import SupervisionError
from tests.unit.actors.until import until

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(10)]

FAST = RestartLimit(max_restarts=3, window_s=60, backoff_s=0.001, backoff_max_s=0.002)


class Stage:
    """Make children that obey the test, and write down what happens to them."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.playing: dict[str, Player] = {}

    def spec(self, name: str, restart: Restart = Restart.PERMANENT, grace_s: float = 5.0, **how: Any) -> ChildSpec:
        return ChildSpec(name=name, factory=lambda: Player(name, self, **how), restart=restart, grace_s=grace_s)

    async def saw(self, *entries: str) -> None:
        """Wait until the log ends with these entries."""
        await until(lambda: tuple(self.log[-len(entries) :]) == entries)

    async def counted(self, entry: str, count: int) -> None:
        """Wait until an entry is there so many times."""
        await until(lambda: self.log.count(entry) >= count)


class Player:
    def __init__(self, name: str, stage: Stage, *, obeys: bool = True, fails_first: int = 0) -> None:
        self.name = name
        self._stage = stage
        self._obeys = obeys
        self._fails = fails_first
        self._cue = anyio.Event()
        self._error: Exception | None = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        self._stage.playing[self.name] = self
        self._stage.log.append(f"{self.name} starts")
        if self._stage.log.count(f"{self.name} starts") <= self._fails:
            raise OSError("cannot start")
        task_status.started()
        try:
            await self._cue.wait()
        except BaseException:
            self._stage.log.append(f"{self.name} cancelled")
            raise
        if self._error is not None:
            raise self._error
        self._stage.log.append(f"{self.name} ends")

    def stop(self) -> None:
        self._stage.log.append(f"{self.name} asked")
        if self._obeys:
            self._cue.set()

    def end(self, error: Exception | None = None) -> None:
        self._error = error
        self._cue.set()


async def test_children_start_in_order_and_stop_in_reverse_order() -> None:
    stage = Stage()
    supervisor = Supervisor("top", [stage.spec("a"), stage.spec("b")])
    async with anyio.create_task_group() as group:
        await group.start(supervisor.run)
        assert stage.log == ["a starts", "b starts"]
        supervisor.stop()
    assert stage.log[2:] == ["b asked", "b ends", "a asked", "a ends"]
    supervisor.check()


async def test_a_child_that_ignores_the_request_is_cancelled_after_its_grace(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    supervisor = Supervisor("top", [stage.spec("a"), stage.spec("b", grace_s=0.01, obeys=False)])
    async with anyio.create_task_group() as group:
        await group.start(supervisor.run)
        supervisor.stop()
    assert stage.log[2:] == ["b asked", "b cancelled", "a asked", "a ends"]
    assert "b did not stop within 0.01 s" in caplog.text


async def test_cancellation_cancels_the_children_without_asking() -> None:
    stage = Stage()
    supervisor = Supervisor("top", [stage.spec("a", obeys=False), stage.spec("b", obeys=False)])
    async with anyio.create_task_group() as group:
        await group.start(supervisor.run)
        group.cancel_scope.cancel()
    assert stage.log[2:] == ["b cancelled", "a cancelled"]


async def test_cancellation_while_stopping_cuts_the_grace_short() -> None:
    stage = Stage()
    supervisor = Supervisor("top", [stage.spec("a"), stage.spec("b", grace_s=1000, obeys=False)])
    async with anyio.create_task_group() as group:
        await group.start(supervisor.run)
        supervisor.stop()
        await stage.saw("b asked")
        group.cancel_scope.cancel()
    assert stage.log[3:] == ["b cancelled", "a cancelled"]


async def test_one_for_one_restarts_the_failed_child_alone_and_tells_the_owner() -> None:
    stage = Stage()
    exits: list[ChildExit] = []
    ready: list[int] = []
    supervisor = Supervisor(
        "top",
        [stage.spec("a"), stage.spec("b")],
        limit=FAST,
        on_exit=exits.append,
        on_ready=lambda: ready.append(len(stage.log)),
    )
    error = ValueError("boom")
    async with anyio.create_task_group() as group:
        await group.start(supervisor.run)
        stage.playing["a"].end(error)
        await stage.saw("b starts", "a starts")
        supervisor.stop()
    assert exits == [ChildExit("a", error)]
    assert ready[0] == 2
    assert supervisor.restarts == 1


async def test_one_for_all_cancels_and_restarts_both() -> None:
    stage = Stage()
    exits: list[ChildExit] = []
    supervisor = Supervisor(
        "top", [stage.spec("a"), stage.spec("b")], strategy=Strategy.ONE_FOR_ALL, limit=FAST, on_exit=exits.append
    )
    async with anyio.create_task_group() as group:
        await group.start(supervisor.run)
        stage.playing["a"].end(ValueError("boom"))
        await stage.saw("b cancelled", "a starts", "b starts")
        stage.playing["a"].end(ValueError("boom"))
        stage.playing["b"].end(ValueError("boom too"))  # a consequence: not reported
        await stage.counted("b starts", 3)
        supervisor.stop()
    assert [exit.name for exit in exits] == ["a", "a"]
    assert supervisor.restarts == 2


async def test_restart_intensity_exceeded_carries_the_causes_and_stops_the_others_in_order() -> None:
    stage = Stage()
    supervisor = Supervisor("top", [stage.spec("a"), stage.spec("b")], limit=FAST)
    errors = [ValueError(f"boom {i}") for i in range(4)]

    async def fail() -> None:
        for i, error in enumerate(errors):
            await stage.counted("b starts", i + 1)
            stage.playing["b"].end(error)

    async with anyio.create_task_group() as group:
        group.start_soon(fail)
        with pytest.raises(SupervisionError, match=r"4 failures in 60 s, of which 3 are allowed.*boom 3") as caught:
            await supervisor.run()
    assert isinstance(caught.value, ChildrenFailed)
    assert caught.value.causes == tuple(errors)
    assert caught.value.__cause__ is errors[-1]
    assert stage.log[-2:] == ["a asked", "a ends"]
    supervisor.check()


async def test_failures_outside_the_window_do_not_count() -> None:
    stage = Stage()
    limit = RestartLimit(max_restarts=1, window_s=0.02, backoff_s=0.0)
    supervisor = Supervisor("top", [stage.spec("a")], limit=limit)
    async with anyio.create_task_group() as group:
        await group.start(supervisor.run)
        for i in range(4):
            stage.playing["a"].end(ValueError("boom"))
            await stage.counted("a starts", i + 2)
            await anyio.sleep(0.03)  # lets the window pass
        supervisor.stop()
    assert supervisor.restarts == 4


async def test_back_off_doubles_up_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    sleep = anyio.sleep

    async def note(delay_s: float) -> None:
        slept.append(delay_s)
        await sleep(0)

    stage = Stage()
    limit = RestartLimit(max_restarts=4, backoff_s=1.0, backoff_max_s=3.0)
    supervisor = Supervisor("top", [stage.spec("a")], limit=limit)
    async with anyio.create_task_group() as group:
        await group.start(supervisor.run)
        monkeypatch.setattr("octavo.actors.supervisor.anyio.sleep", note)
        for i in range(4):
            stage.playing["a"].end(ValueError("boom"))
            while stage.log.count("a starts") < i + 2:
                await sleep(0)
        supervisor.stop()
    assert slept == [1.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize(
    ("restart", "error", "again"),
    [
        (Restart.PERMANENT, None, True),
        (Restart.PERMANENT, ValueError(), True),
        (Restart.TRANSIENT, None, False),
        (Restart.TRANSIENT, ValueError(), True),
        (Restart.TEMPORARY, None, False),
        (Restart.TEMPORARY, ValueError(), False),
    ],
)
async def test_restart_policy(restart: Restart, error: Exception | None, again: bool) -> None:
    stage = Stage()
    supervisor = Supervisor("top", [stage.spec("a", restart)], limit=FAST)
    async with anyio.create_task_group() as group:
        await group.start(supervisor.run)
        stage.playing["a"].end(error)
        if again:
            await stage.counted("a starts", 2)
            supervisor.stop()
    # without a restart, run has returned by itself: no child was left
    assert supervisor.restarts == int(again)


async def test_a_child_that_fails_before_it_was_ever_ready_ends_the_supervisor_at_once() -> None:
    stage = Stage()
    supervisor = Supervisor("top", [stage.spec("a"), stage.spec("b", fails_first=1), stage.spec("c")])
    with pytest.raises(ChildrenFailed, match="b failed: OSError: cannot start before it was ready") as caught:
        await supervisor.run()
    assert isinstance(caught.value.causes[0], OSError)
    assert stage.log == ["a starts", "b starts", "a asked", "a ends"]


async def test_a_factory_that_raises_counts_as_a_failed_start() -> None:
    def make() -> Player:
        raise KeyError("no")

    with pytest.raises(ChildrenFailed, match="a failed: KeyError: 'no'"):
        await Supervisor("top", [ChildSpec(name="a", factory=make)]).run()


async def test_a_restart_that_fails_to_start_counts_and_is_tried_again() -> None:
    stage = Stage()
    fails = stage.spec("b")
    starts = 0

    def make() -> Player:
        nonlocal starts
        starts += 1
        return Player("b", stage, fails_first=99 if starts in (2, 3) else 0)

    supervisor = Supervisor(
        "top",
        [stage.spec("a"), ChildSpec(name=fails.name, factory=make)],
        strategy=Strategy.ONE_FOR_ALL,
        limit=FAST,
    )
    async with anyio.create_task_group() as group:
        await group.start(supervisor.run)
        stage.playing["a"].end(ValueError("boom"))
        await stage.counted("b starts", 4)
        supervisor.stop()
    assert supervisor.restarts == 3


async def test_a_verdict_overrules_the_policy() -> None:
    stage = Stage()
    verdicts = [*[Verdict.RESTART_UNCOUNTED] * 10, Verdict.GIVE_UP]
    supervisor = Supervisor("top", [stage.spec("a")], limit=FAST, on_exit=lambda exit: verdicts.pop(0))

    async def fail() -> None:
        for i in range(11):
            await stage.counted("a starts", i + 1)
            stage.playing["a"].end(ValueError(f"boom {i}"))

    async with anyio.create_task_group() as group:
        group.start_soon(fail)
        with pytest.raises(ChildrenFailed, match="boom 10; it is not restarted"):
            await supervisor.run()
    assert supervisor.restarts == 10


async def test_stop_during_the_back_off_ends_it() -> None:
    stage = Stage()
    limit = RestartLimit(backoff_s=1000, backoff_max_s=1000)
    exited = anyio.Event()
    supervisor = Supervisor("top", [stage.spec("a")], limit=limit, on_exit=lambda exit: exited.set())
    async with anyio.create_task_group() as group:
        await group.start(supervisor.run)
        stage.playing["a"].end(ValueError("boom"))
        await exited.wait()
        await anyio.wait_all_tasks_blocked()
        supervisor.stop()
    assert stage.log == ["a starts"]


async def test_supervisors_nest() -> None:
    stage = Stage()
    inner = ChildSpec(name="inner", factory=lambda: Supervisor("inner", [stage.spec("a")]), grace_s=5)
    outer = Supervisor("outer", [stage.spec("b"), inner])
    async with anyio.create_task_group() as group:
        await group.start(outer.run)
        outer.stop()
    assert stage.log == ["b starts", "a starts", "a asked", "a ends", "b asked", "b ends"]


async def test_an_error_in_the_owners_callback_stops_the_children_and_comes_out() -> None:
    def complain(exit: ChildExit) -> None:
        raise RuntimeError("owner's mistake")

    stage = Stage()
    supervisor = Supervisor("top", [stage.spec("a"), stage.spec("b")], on_exit=complain)
    async with anyio.create_task_group() as group:

        async def run() -> None:
            with pytest.raises(RuntimeError, match="owner's mistake"):
                await supervisor.run()

        group.start_soon(run)
        await stage.saw("a starts", "b starts")
        stage.playing["a"].end(ValueError("boom"))
    assert stage.log[-2:] == ["b asked", "b ends"]
