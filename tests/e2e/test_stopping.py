"""How a server ends, loses its front, and refuses to begin: cases by id.

OCTAVO_LOOPS repeats what the cases want repeated: 20 for all that SU01 asks for, SU03 takes half of it as its moments.

| case | test |
|---|---|
| SU01, launcher killed when ready, and during the load | test_su01_a_killed_launcher_leaves_nothing_... |
| SU01, front killed | test_su01_su04_a_front_that_dies_comes_back_... |
| SU01, hang-up | test_su01_a_hung_up_terminal_ends_everything |
| SU03, signals | test_su03_signals_between_launch_and_ready_leave_nothing |
| SU03, time-out of the start | there is none in octavo: /ready tells when it is done |
| SU04 | test_su04_... |
| SU06 | test_su06_bad_flags_are_found_before_weights_are_read |
| SE04 | test_se04_...; with several engine cores in test_data_parallel |
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import pty
import random
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Semaphore

import httpx
import openai
import psutil
import pytest
import zmq
from msgspec import msgpack

from octavo.wire.version import PROTOCOL, VERSION
from tests.e2e.server import Server, default_signals, running, start, stop, wait_for

FLAGS = ("--served-model-name", "tiny", "--dtype", "float32", "--kv-cache-memory-bytes", "16M")
STREAMS = 4
#: Of what the cases want repeated; CI has time for few.
LOOPS = int(os.environ.get("OCTAVO_LOOPS", "1"))
#: Of one server's front: a part that dies more often within ten minutes is waited for longer each time, then given up.
KILLS = 5


def stream(server: Server, begun: Semaphore) -> tuple[int, str]:
    """Stream a long completion; return how many chunks came and how it ended: its finish_reason, or the error."""
    chunks = 0
    reason = "nothing"
    try:
        answer = server.client().completions.create(
            model="tiny", prompt="a", max_tokens=480, stream=True, extra_body={"ignore_eos": True}
        )
        for chunk in answer:
            chunks += 1
            if chunks == 1:
                begun.release()
            reason = chunk.choices[0].finish_reason or reason
    except openai.APIError as error:
        return chunks, error.message
    return chunks, reason


def streams(server: Server, pool: ThreadPoolExecutor) -> list[Future[tuple[int, str]]]:
    """Start streams and wait until all have begun."""
    begun = Semaphore(0)
    futures = [pool.submit(stream, server, begun) for _ in range(STREAMS)]
    for _ in range(STREAMS):
        assert begun.acquire(timeout=60)
    return futures


@pytest.mark.parametrize("kills", [min(KILLS, LOOPS - done) for done in range(0, LOOPS, KILLS)])
def test_su01_su04_a_front_that_dies_comes_back_and_running_requests_finish_at_the_end(tiny: Path, kills: int) -> None:
    with running(tiny, *FLAGS, "--shutdown-timeout", "60") as server, ThreadPoolExecutor(STREAMS) as pool:
        engine = server.pid("engine")
        for _ in range(kills):
            futures = streams(server, pool)
            server.kill("frontend")
            assert all(future.result(30)[1] != "length" for future in futures)
            wait_for(server.ready, 10, "ready again")
            assert server.pid("engine") == engine
            wait_for(lambda: server.metric("octavo:num_requests_running") == 0, 20, "aborted in the engine")
            wait_for(lambda: server.metric("octavo:kv_cache_usage_perc") == 0, 20, "blocks are back")

        futures = streams(server, pool)
        os.kill(server.process.pid, signal.SIGTERM)
        server.logged("SIGTERM: stopping (again")
        statuses = [server.get("/ready").status_code, server.get("/health").status_code]
        refused = httpx.post(f"{server.url}/v1/completions", json={"model": "tiny", "prompt": "a"}, timeout=10)
        assert (statuses, refused.status_code) == ([503, 200], 503)
        assert "retry-after" in refused.headers
        assert not all(future.done() for future in futures), "the streams are too short for this test"
        assert {future.result(60)[1] for future in futures} == {"length"}
        assert server.process.wait(30) == 0


def test_su04_what_still_runs_at_the_end_gets_an_error(tiny: Path) -> None:
    with running(tiny, *FLAGS) as server, ThreadPoolExecutor(STREAMS) as pool:
        futures = streams(server, pool)
        os.kill(server.process.pid, signal.SIGTERM)
        assert {future.result(30)[1] for future in futures} == {"The server is shutting down. Try again later."}
        assert server.process.wait(30) == 0


def test_su04_a_second_signal_ends_at_once(tiny: Path) -> None:
    # The engine stands still at its third step, so that nothing would ever finish.
    faults = {"OCTAVO_FAULTS": "engine:hang@step=3"}
    with running(tiny, *FLAGS, "--shutdown-timeout", "300", env=faults, exit_code=1) as server:
        with ThreadPoolExecutor(1) as pool:
            begun = Semaphore(0)
            hung = pool.submit(stream, server, begun)
            assert begun.acquire(timeout=60)
            family = server.tree()
            os.kill(server.process.pid, signal.SIGTERM)
            server.logged("running requests have 300 s")
            began = time.monotonic()
            os.kill(server.process.pid, signal.SIGTERM)
            assert server.process.wait(10) == 1
            assert time.monotonic() - began < 5
            hung.result(10)
        assert "stopping at once" in server.text()
        assert not psutil.wait_procs(family[1:], timeout=5)[1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_su03_signals_between_launch_and_ready_leave_nothing(tiny: Path, number: signal.Signals) -> None:
    moments = random.Random(int(number))
    for _ in range(max(2, LOOPS // 2)):
        server = start(tiny, *FLAGS)
        try:
            time.sleep(moments.uniform(0.2, 4.0))
            family = server.tree()
            server.process.send_signal(number)
            assert server.process.wait(15) in (0, 128 + number, -number)
            assert not psutil.wait_procs(family[1:], timeout=5)[1]
        finally:
            stop(server)


@pytest.mark.parametrize("moment", ["ready", "loading"])
def test_su01_a_killed_launcher_leaves_nothing_and_can_start_again(tiny: Path, moment: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    for _ in range(LOOPS + 1):  # each start after the first is the immediate restart
        kill_launcher(tiny, port, moment)


def kill_launcher(tiny: Path, port: str, moment: str) -> None:
    """Start a server, kill its launcher at the moment, and look that nothing is left."""
    server = start(tiny, *FLAGS, "--port", port)
    try:
        if moment == "ready":
            assert server.process.stdout is not None
            assert server.process.stdout.readline().startswith("octavo is ready"), server.text()
        else:
            wait_for(lambda: server.pids("engine") != [], 30, "an engine that loads")
        family = server.tree()
        os.kill(server.process.pid, signal.SIGKILL)
        assert server.process.wait(10) == -signal.SIGKILL
        assert not psutil.wait_procs(family[1:], timeout=10)[1]
    finally:
        stop(server)


def test_su01_a_hung_up_terminal_ends_everything(tiny: Path) -> None:
    for _ in range(LOOPS):
        hang_up(tiny)


def hang_up(tiny: Path) -> None:
    """Start a server in a terminal, close the terminal, and look that nothing is left."""
    ours, theirs = pty.openpty()

    def take_terminal() -> None:
        default_signals()
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    command = [sys.executable, "-m", "octavo", "serve", str(tiny), "--port", "0", *FLAGS]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    server = Server(subprocess.Popen(command, text=True, stdin=theirs, preexec_fn=take_terminal, **pipes))
    try:
        assert server.process.stdout is not None
        assert server.process.stdout.readline().startswith("octavo is ready")
        family = server.tree()
        os.close(theirs)
        os.close(ours)
        assert server.process.wait(10) == -signal.SIGHUP
        assert not psutil.wait_procs(family[1:], timeout=10)[1]
    finally:
        stop(server)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--no-such-flag",), "--no-such-flag"),
        (("--port", "{taken}"), "--port"),
        (("--ssl-certfile", "{cert}", "--ssl-keyfile", "{bad}"), "--ssl-keyfile"),
        (("--api-key-file", "{bad}"), "--api-key-file"),
        (("--uds", "{bad}"), "--uds"),
        (("--tool-call-parser", "no_such_parser"), "--tool-call-parser"),
        (("--chat-template", "/nowhere.jinja"), "/nowhere.jinja"),
    ],
)
def test_su06_bad_flags_are_found_before_weights_are_read(
    tiny: Path, tmp_path: Path, flags: tuple[str, ...], said: str
) -> None:
    bad = tmp_path / "bad"
    bad.write_text("nonsense")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        names = {"taken": str(taken.getsockname()[1]), "bad": str(bad), "cert": str(bad)}
        words = [flag.format(**names) for flag in flags]
        command = [sys.executable, "-m", "octavo", "serve", str(tiny), *FLAGS, *words]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 2
    assert "loading" not in ended.stderr
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


class _Touch:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, (str(self._path),))


def connected(address: tuple[str, int] | str) -> socket.socket:
    """Connect to a port or to a socket file."""
    if isinstance(address, tuple):
        return socket.create_connection(address, timeout=2)
    stranger = socket.socket(socket.AF_UNIX)
    stranger.settimeout(2)
    stranger.connect(address)
    return stranger


def speak_zeromq(paths: list[str], payloads: list[bytes]) -> None:
    """Send frames that mean nothing, and a Hello that is not the engine's, and ask for messages that are others'."""
    hello = msgpack.encode(["Hello", PROTOCOL, VERSION, "engine", 0, 1])
    header = msgpack.encode([99, 0, 0, 0, 1 << 20, 0])
    messages = [[], *([payload] for payload in payloads), [b"", payloads[0]], [header, hello], [header, payloads[1]]]
    strangers = []
    with zmq.Context() as context:
        for path in paths:
            for kind in (zmq.PUSH, zmq.DEALER, zmq.PAIR, zmq.PULL):
                stranger = context.socket(kind)
                strangers.append(stranger)  # one that is collected takes its messages with it
                stranger.linger = 0
                stranger.connect(f"ipc://{path}")
                if kind == zmq.PULL:
                    continue
                for message in messages:
                    with contextlib.suppress(zmq.Again):
                        stranger.send_multipart(message or [b""], zmq.NOBLOCK)
        time.sleep(1.0)  # nothing tells when strangers have been passed over
        context.destroy(linger=0)


def test_se04_no_socket_runs_what_strangers_send(server: Server, tmp_path: Path) -> None:
    send_as_strangers(server, tmp_path)


def restarts(server: Server) -> float:
    """How often engine cores and workers came back."""
    return server.metric("octavo:engine_restarts_total") + server.metric("octavo:worker_restarts_total")


def send_as_strangers(server: Server, tmp_path: Path, ports: int = 1) -> None:
    """Send to every socket of a server what must not be run, and look that nobody has and that all goes on.

    `ports`: how many it was told to listen on, HTTP's and perhaps gRPC's.
    """
    before = restarts(server)
    touched = tmp_path / "touched"
    payloads = [pickle.dumps(_Touch(touched)), os.urandom(4096), struct.pack(">Q", 4 << 30) + b"\xff" * 64]
    tcp = []
    unix = []
    for process in server.tree():
        for one in process.net_connections(kind="all"):
            if one.family == socket.AF_UNIX and isinstance(one.laddr, str) and one.laddr.startswith("/"):
                unix.append(one.laddr)
            elif one.status == psutil.CONN_LISTEN:
                assert one.laddr.ip in ("127.0.0.1", "::1"), one
                tcp.append((one.laddr.ip, one.laddr.port))
    assert len(set(tcp)) == ports, "no port but those it was told of"
    assert unix
    for path in set(unix):
        assert os.stat(Path(path).parent).st_mode & 0o077 == 0, path
    for address in [*set(tcp), *set(unix)]:
        for payload in payloads:
            with contextlib.suppress(OSError), connected(address) as stranger:
                stranger.sendall(payload)
                stranger.shutdown(socket.SHUT_WR)
                stranger.recv(64)
    # Unix sockets are in a folder that no other user may enter; what this user sends there is passed over all the same.
    speak_zeromq(sorted(set(unix)), payloads)
    assert not touched.exists()
    with server.client() as client:
        assert client.completions.create(model="tiny", prompt="a", max_tokens=2).usage is not None
    assert restarts(server) == before


def test_se04_nothing_is_unpickled() -> None:
    root = Path(__file__).resolve().parents[2] / "python"
    forbidden = ("pickle.load", "cloudpickle", "recv_pyobj", "weights_only=False", "marshal.load", "dill.")
    found = [
        f"{path.relative_to(root)}: {word}"
        for path in root.rglob("*.py")
        for word in forbidden
        if word in path.read_text(encoding="utf-8")
    ]
    assert not found
