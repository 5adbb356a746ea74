from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import psutil
import pytest

from octavo.actors.errors import ActorDead, ChildrenFailed, HelloTimeout, ProcessDied, ProcessHung, SendFull
from octavo.actors.link import StdoutLink, ZmqLink
from octavo.actors.process import ProcessActor, ProcessSpec
from octavo.actors.supervisor import ChildSpec, RestartLimit, Strategy, Supervisor
from octavo.errors import ConfigError, ProtocolError
from tests.unit.actors.until import until

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

    from octavo.actors.transport import Context

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60), pytest.mark.usefixtures("open_files")]

PROGRAMS = Path(__file__).parent / "programs.py"

Message = list[bytes]


class Owner:
    """Make process actors over ZeroMQ and collect what they hand on."""

    def __init__(self, context: Context, folder: Path) -> None:
        self.context = context
        self.folder = folder
        self.messages: list[Message] = []
        self.actor: ProcessActor[Message]
        self._changed = anyio.Event()

    def make(self, program: str, *arguments: str, stop: Message | None = None, **spec: Any) -> ProcessActor[Message]:
        argv = [sys.executable, str(PROGRAMS), program, *arguments]
        self.actor = ProcessActor(
            ProcessSpec(name=spec.pop("name", "worker-0"), argv=argv, **spec),
            ZmqLink(self.context, self.folder, list),
            check_hello=self._check_hello,
            on_message=self._collect,
            progress=lambda message: message[1] if message[0] == b"heartbeat" else None,
            stop_message=stop,
        )
        return self.actor

    async def saw(self, count: int) -> None:
        while len(self.messages) < count:
            self._changed = anyio.Event()
            await self._changed.wait()

    def _check_hello(self, message: Message) -> None:
        _, version, incarnation = message
        if version != b"1":
            raise ProtocolError(f"worker-0 speaks version {version.decode()}, this is version 1; install one version")
        assert int(incarnation) == self.actor.incarnation

    def _collect(self, message: Message) -> None:
        self.messages.append(message)
        self._changed.set()


@pytest.fixture
def owner(context: Context, folder: Path) -> Owner:
    return Owner(context, folder)


async def test_messages_go_both_ways_and_stop_ends_the_process(owner: Owner) -> None:
    actor = owner.make("echo", stop=[b"stop"])
    with pytest.raises(ActorDead, match="not said hello"):
        actor.send([b"early"])
    async with anyio.create_task_group() as group:
        pid = await group.start(actor.run)
        assert pid == actor.pid
        actor.send([b"a", b"", b"c" * 100_000])
        await owner.saw(2)
        actor.stop()
    assert owner.messages[0][0] == b"hello"
    assert owner.messages[1:] == [[b"a", b"", b"c" * 100_000]]
    assert not psutil.pid_exists(pid)
    assert os.listdir(owner.folder) == []
    with pytest.raises(ActorDead, match="has ended"):
        actor.send([b"late"])
    with pytest.raises(ActorDead):
        await actor.writable()


async def test_ten_thousand_messages_both_ways_arrive_in_order(owner: Owner) -> None:
    count = 10_000
    actor = owner.make("flood", str(count), stop=[b"stop"])
    async with anyio.create_task_group() as group:
        await group.start(actor.run)
        for i in range(count):
            while True:
                try:
                    actor.send([b"echo", b"%d" % i])
                    break
                except SendFull:
                    await actor.writable()
        await owner.saw(1 + 2 * count)
        actor.stop()
    numbers = {kind: [int(m[1]) for m in owner.messages if m[0] == kind] for kind in (b"echo", b"flood")}
    assert numbers == {b"echo": list(range(count)), b"flood": list(range(count))}


async def test_a_crash_hands_on_the_last_message_and_carries_the_end_of_stderr(
    owner: Owner, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ProcessDied, match="worker-0 died: exit code 3") as caught:
        await owner.make("crash").run()
    assert [message[0] for message in owner.messages] == [b"hello", b"fault"]
    error = caught.value
    assert error.returncode == 3
    assert len(error.stderr) == 40
    assert "line 99" in error.stderr
    assert "line 99" in error.message
    assert "line 50" not in error.stderr
    passed_on = capfd.readouterr().err
    assert "line 0\n" in passed_on
    assert "a print on stdout\n" in passed_on


async def test_a_message_that_comes_in_after_the_death_is_handed_on(context: Context, folder: Path) -> None:
    class Late(ZmqLink[Message]):
        async def receive(self) -> list[Message]:
            if messages:  # after the hello
                await until(lambda: not _runs(actor.pid))
            return await super().receive()

    messages: list[Message] = []
    argv = [sys.executable, str(PROGRAMS), "stray"]
    spec = ProcessSpec(name="worker-0", argv=argv)
    link = Late(context, folder, list)
    actor = ProcessActor(spec, link, check_hello=lambda message: None, on_message=messages.append)
    with pytest.raises(ProcessDied):
        await actor.run()
    assert [message[0] for message in messages] == [b"hello", b"stray"]


async def test_death_by_a_signal_is_named(owner: Owner) -> None:
    with pytest.raises(ProcessDied, match="killed by SIGKILL"):
        await owner.make("die").run()


async def test_a_process_that_dies_before_hello_shows_why(owner: Owner) -> None:
    with pytest.raises(ProcessDied, match=r"exit code 1\n  \| no such model"):
        await owner.make("fail").run()


async def test_a_program_that_does_not_exist_is_an_oserror(owner: Owner) -> None:
    spec = ProcessSpec(name="worker-0", argv=["/absent/program"])
    link = ZmqLink(owner.context, owner.folder, list)
    actor = ProcessActor(spec, link, check_hello=lambda m: None, on_message=lambda m: None)
    with pytest.raises(FileNotFoundError, match="/absent/program"):
        await actor.run()
    assert os.listdir(owner.folder) == []


async def test_a_child_that_never_says_hello_is_killed(owner: Owner) -> None:
    # long enough for it to print, on any machine: the time is up only when it has been silent for all of it
    actor = owner.make("silent", hello_timeout_s=3)
    with pytest.raises(HelloTimeout, match=r"worker-0 did not say hello within 3 s\n  \| still loading"):
        await actor.run()
    assert actor.pid is not None
    assert not psutil.pid_exists(actor.pid)


async def test_a_child_of_a_wrong_version_is_killed(owner: Owner) -> None:
    actor = owner.make("wrong_version")
    with pytest.raises(ProtocolError, match="speaks version 0"):
        await actor.run()
    assert actor.pid is not None
    assert not psutil.pid_exists(actor.pid)
    assert owner.messages == []


async def test_a_hang_is_seen_in_heartbeats_that_stand_still_and_leaves_the_stacks(owner: Owner) -> None:
    actor = owner.make("hang", hang_timeout_s=0.5, dump_signal=signal.SIGUSR1)
    with pytest.raises(ProcessHung, match=r"worker-0 hung: no progress for 0.5 s \(last seen at b'step 7'\)") as caught:
        await actor.run()
    assert any("in hang" in line for line in caught.value.stderr)  # the function's name, from faulthandler
    assert actor.pid is not None
    assert not psutil.pid_exists(actor.pid)


async def test_a_stopped_process_is_a_hang_too(owner: Owner) -> None:
    actor = owner.make("work", hang_timeout_s=0.5)

    async def freeze() -> None:
        await owner.saw(2)
        assert actor.pid is not None
        os.kill(actor.pid, signal.SIGSTOP)

    async with anyio.create_task_group() as group:
        group.start_soon(freeze)
        with pytest.raises(ProcessHung):
            await actor.run()
        group.cancel_scope.cancel()


async def test_progress_in_heartbeats_is_no_hang(owner: Owner) -> None:
    actor = owner.make("work", hang_timeout_s=3, stop=[b"stop"])
    async with anyio.create_task_group() as group:
        await group.start(actor.run)
        await owner.saw(200)  # takes 4 s at least
        actor.stop()


async def test_a_stubborn_child_is_killed_after_its_grace(owner: Owner) -> None:
    spec = ChildSpec(name="worker-0", factory=lambda: owner.make("stubborn", stop=[b"stop"]), grace_s=0.2)
    supervisor = Supervisor("group", [spec])
    async with anyio.create_task_group() as group:
        await group.start(supervisor.run)
        pid = owner.actor.pid
        assert pid is not None
        began = time.monotonic()
        supervisor.stop()
    assert time.monotonic() - began >= 0.2
    assert not psutil.pid_exists(pid)


async def test_sigterm_is_the_stop_message_when_there_is_none(owner: Owner) -> None:
    actor = owner.make("work")
    async with anyio.create_task_group() as group:
        await group.start(actor.run)
        actor.stop()
    assert not psutil.pid_exists(actor.pid)


async def test_cancellation_kills_at_any_moment(owner: Owner) -> None:
    pids = []
    for delay_s in (0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.4):
        actor = owner.make("stubborn")
        with anyio.move_on_after(delay_s):
            await actor.run()
        pids.append(actor.pid)
    assert not any(pid is not None and psutil.pid_exists(pid) for pid in pids)
    assert os.listdir(owner.folder) == []


async def test_what_was_written_before_a_cancellation_is_passed_on(
    context: Context, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def cancel(message: Message) -> None:
        if message == [b"spoke"]:
            scope.cancel()

    spec = ProcessSpec(name="worker-0", argv=[sys.executable, str(PROGRAMS), "speak"])
    link = ZmqLink(context, folder, list)
    actor = ProcessActor(spec, link, check_hello=lambda message: None, on_message=cancel)
    with anyio.CancelScope() as scope:
        await actor.run()
    assert "last words\n" in capfd.readouterr().err


async def test_cancellation_during_clean_up_leaves_no_process(owner: Owner) -> None:
    """The scope is cancelled again and again while the process is killed and reaped."""
    actor = owner.make("stubborn")
    ended = anyio.Event()

    async def run(*, task_status: TaskStatus[int]) -> None:
        try:
            await actor.run(task_status=task_status)
        finally:
            ended.set()

    async with anyio.create_task_group() as group:
        await group.start(run)
        with anyio.CancelScope(shield=True):
            while not ended.is_set():
                group.cancel_scope.cancel()
                await anyio.lowlevel.checkpoint()
    assert actor.pid is not None
    assert not psutil.pid_exists(actor.pid)
    assert os.listdir(owner.folder) == []


async def test_what_a_dead_process_left_in_its_group_is_killed(owner: Owner) -> None:
    began = time.monotonic()
    with pytest.raises(ProcessDied, match="exit code 1"):
        await owner.make("stray").run()
    assert time.monotonic() - began < 30  # the stray held stderr open
    stray = int(owner.messages[1][1])
    await until(lambda: not _runs(stray))


async def test_one_for_all_restarts_both_processes_with_new_incarnations(context: Context, folder: Path) -> None:
    owners = [Owner(context, folder) for _ in range(2)]

    def spec(rank: int) -> ChildSpec:
        name = f"worker-{rank}"
        return ChildSpec(name=name, factory=lambda: owners[rank].make("echo", name=name, stop=[b"stop"]))

    ready: list[list[int | None]] = []
    supervisor = Supervisor(
        "ranks",
        [spec(0), spec(1)],
        strategy=Strategy.ONE_FOR_ALL,
        limit=RestartLimit(backoff_s=0.01),
        on_ready=lambda: ready.append([owner.actor.pid for owner in owners]),
    )
    async with anyio.create_task_group() as group:
        await group.start(supervisor.run)
        before = [owner.actor.incarnation for owner in owners]
        _kill(ready[0][1])
        await until(lambda: len(ready) == 2)
        assert not {owner.actor.incarnation for owner in owners} & set(before)
        assert not any(_runs(pid) for pid in ready[0])
        supervisor.stop()
    assert os.listdir(folder) == []


async def test_many_restarts_leave_no_file_descriptor_thread_or_socket_file(owner: Owner) -> None:
    threads = threading.active_count()
    supervisor = Supervisor(
        "group",
        [ChildSpec(name="worker-0", factory=lambda: owner.make("echo"))],
        limit=RestartLimit(max_restarts=10, backoff_s=0),
        on_ready=lambda: _kill(owner.actor.pid),
    )
    with pytest.raises(ChildrenFailed, match="11 failures") as caught:
        await supervisor.run()
    assert [type(cause) for cause in caught.value.causes] == [ProcessDied] * 11
    await until(lambda: threading.active_count() <= threads)  # those that wait for processes end just after they told
    assert os.listdir(owner.folder) == []  # the fixture looks at the descriptors


async def test_stdout_can_carry_the_hello(capfd: pytest.CaptureFixture[str]) -> None:
    events: list[dict[str, Any]] = []
    actor = _listener("stay", events)
    async with anyio.create_task_group() as group:
        await group.start(actor.run)
        actor.stop()
    assert events == [{"event": "listening", "inherited": "yes"}]
    error = capfd.readouterr().err
    assert "starting up\n" in error
    assert "listening" not in error


async def test_exit_code_0_is_no_error() -> None:
    events: list[dict[str, Any]] = []
    await _listener("exit", events).run()
    assert len(events) == 1


def _listener(behaviour: str, events: list[dict[str, Any]]) -> ProcessActor[dict[str, Any]]:
    argv = [sys.executable, str(PROGRAMS), "listening", behaviour]
    spec = ProcessSpec(name="frontend", argv=argv, env={"OCTAVO_TEST": "yes"})
    return ProcessActor(spec, StdoutLink(), check_hello=lambda event: None, on_message=events.append)


async def test_a_folder_that_others_can_enter_is_refused(owner: Owner) -> None:
    owner.folder.chmod(0o750)
    with pytest.raises(ConfigError, match="chmod 700"):
        await owner.make("echo").run()


async def test_a_path_that_is_too_long_for_a_socket_is_refused(context: Context, folder: Path) -> None:
    deep = folder / ("x" * 100)
    deep.mkdir(mode=0o700)
    with pytest.raises(ConfigError, match="at most 107 are possible; set TMPDIR"):
        await Owner(context, deep).make("echo").run()


async def test_an_error_of_the_owner_kills_the_process(context: Context, folder: Path) -> None:
    def refuse(message: Message) -> None:
        raise RuntimeError("owner's mistake")

    argv = [sys.executable, str(PROGRAMS), "echo"]
    link = ZmqLink(context, folder, list)
    spec = ProcessSpec(name="worker-0", argv=argv)
    actor = ProcessActor(spec, link, check_hello=lambda message: None, on_message=refuse)
    with pytest.raises(RuntimeError, match="owner's mistake"):
        await actor.run()
    assert actor.pid is not None
    assert not psutil.pid_exists(actor.pid)


def _kill(pid: int | None) -> None:
    assert pid  # 0 would be ourselves
    os.kill(pid, signal.SIGKILL)


def _runs(pid: int | None) -> bool:
    assert pid
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
