"""Complete servers on following ports, one for each data-parallel rank, behind somebody else's load balancer.

Each replica is `octavo serve` in a process of its own, with its own /health and /ready; one that dies is started again
and the others go on. This process answers on a port of its own how all of them are.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import ssl
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import msgspec

from octavo import __version__, log
from octavo.actors.child import report, watch_parent
from octavo.actors.errors import ChildrenFailed, ProcessDied
from octavo.actors.link import StdoutLink
from octavo.actors.process import ProcessActor, ProcessSpec
from octavo.actors.supervisor import ChildExit, ChildSpec, RestartLimit, Supervisor, Verdict
from octavo.config import ServeConfig, build
from octavo.devices import choose_device, choose_threads, torch_has_cuda, visible_gpus
from octavo.engine_settings import RESTART_WINDOW_S
from octavo.errors import ConfigError, OctavoError, ProtocolError
from octavo.listening import listening
from octavo.runfolder import run_folder

__all__ = ["serve_replicas"]

_log = logging.getLogger("octavo.replicas")

_EXIT_FINAL = 2
#: From the start of a replica to its first sign: Python and its imports.
_HELLO_TIMEOUT_S = 60.0

Given = Mapping[str, str | Sequence[str]]


def serve_replicas(config: ServeConfig, given: Given) -> int:
    """Serve until SIGINT or SIGTERM; return the exit code. `given`: what the user set, as `build` takes it.

    Raises ConfigError before anything has started; ChildrenFailed when a replica failed too often.
    """
    log.setup("replicas", config.log_level)
    ports = _ports(config)
    parts = _parts(config)
    for port in ports:
        with listening(config.host, port, None, tls=False):  # a port that is taken is said now, and once
            pass
    with run_folder() as folder, _status_server(config) as status:
        for rank, (port, part) in enumerate(zip(ports, parts, strict=True)):
            settings = {**given, **part.settings, "port": str(port), "data_parallel_size": "1"}
            settings.pop("data_parallel_multi_port_external_lb", None)
            file = folder / f"replica-{rank}.json"
            file.write_bytes(msgspec.json.encode(settings))
            file.chmod(0o600)  # there may be keys in it
        scheme = "https" if config.encrypted else "http"
        _log.info("%d servers on ports %d to %d", len(ports), ports[0], ports[-1])
        where = f"{scheme}://{config.host}:{config.data_parallel_supervisor_port}"
        _log.info("how all are: %s/ready (each has its own /health and /ready)", where)
        return anyio.run(_Replicas(config, folder, parts, status).run)


@dataclass(frozen=True, slots=True)
class _Part:
    """What one replica gets of the machine."""

    settings: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)


def _ports(config: ServeConfig) -> list[int]:
    size = config.data_parallel_size
    if size < 2:
        raise ConfigError(
            f"--data-parallel-multi-port-external-lb needs --data-parallel-size 2 or more; it is {size}",
            "data_parallel_size",
        )
    if config.uds is not None:
        raise ConfigError("--data-parallel-multi-port-external-lb listens on ports: leave --uds out", "uds")
    if config.grpc_port is not None:
        raise ConfigError(
            "--data-parallel-multi-port-external-lb serves HTTP alone: leave --grpc-port out",
            "grpc_port",
        )
    if config.port == 0 or config.port + size > 65536:
        raise ConfigError(
            f"--data-parallel-multi-port-external-lb uses {size} ports from --port on, which is {config.port}: "
            f"give one from 1 to {65536 - size}",
            "port",
        )
    ports = list(range(config.port, config.port + size))
    if config.data_parallel_supervisor_port in ports:
        raise ConfigError(
            f"--data-parallel-supervisor-port {config.data_parallel_supervisor_port} is the port of a server "
            f"({ports[0]} to {ports[-1]}); choose another",
            "data_parallel_supervisor_port",
        )
    return ports


def _parts(config: ServeConfig) -> list[_Part]:
    """Divide GPUs, or CPUs. Raises ConfigError where there are too few GPUs."""
    size, each = config.data_parallel_size, config.tensor_parallel_size
    gpus = () if config.device == "cpu" else visible_gpus()
    device = choose_device(config.device, size * each, gpus, bool(gpus) and torch_has_cuda())
    if device == "cpu":
        threads = config.threads or choose_threads(0, size * each)
        return [_Part(settings={"threads": str(threads), "device": "cpu"})] * size
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = [name for name in named.split(",") if name] or [str(index) for index in range(len(gpus))]
    shares = [names[rank * each : (rank + 1) * each] for rank in range(size)]
    return [_Part(env={"CUDA_VISIBLE_DEVICES": ",".join(share)}) for share in shares]


class _Status:
    """Which replicas are ready; read by the threads of the status server."""

    def __init__(self, ranks: int) -> None:
        self._lock = threading.Lock()
        self._ranks: list[dict[str, Any]] = [{"rank": rank, "ready": False, "restarts": 0} for rank in range(ranks)]

    def started(self, rank: int, url: str) -> None:
        """Note that a replica serves."""
        with self._lock:
            self._ranks[rank] |= {"ready": True, "url": url}

    def ended(self, rank: int) -> None:
        """Note that a replica died."""
        with self._lock:
            known = self._ranks[rank]
            self._ranks[rank] = {**known, "ready": False, "restarts": known["restarts"] + 1}

    def show(self) -> tuple[bool, dict[str, Any]]:
        """Return whether all are ready, and what is told of them."""
        with self._lock:
            ready = all(rank["ready"] for rank in self._ranks)
            return ready, {"status": "ready" if ready else "starting", "ranks": [dict(rank) for rank in self._ranks]}


@contextlib.contextmanager
def _status_server(config: ServeConfig) -> Iterator[_Status]:
    """Answer GET /health (200 while this process lives), /ready and /readyz (200 when all are ready, else 503)."""
    status = _Status(config.data_parallel_size)

    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            ready, shown = status.show()
            code = {"/health": 200, "/ready": 200 if ready else 503, "/readyz": 200 if ready else 503}.get(path, 404)
            body = json.dumps(shown if code != 404 else {"error": f"no route {path}: /health, /ready"}).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            _log.debug(format, *args)

    port = config.data_parallel_supervisor_port
    try:
        server = ThreadingHTTPServer((config.host, port), Handler)
    except OSError as error:
        raise ConfigError(
            f"--data-parallel-supervisor-port {port}: {error.strerror or error}; choose another",
            "data_parallel_supervisor_port",
        ) from None
    server.daemon_threads = True
    tls = config.edge().tls
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.certfile, tls.keyfile)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, name="status", daemon=True)
    thread.start()
    try:
        yield status
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class _Replicas:
    """The supervisor's state while the replicas run."""

    config: ServeConfig
    folder: Path
    parts: list[_Part]
    status: _Status
    _began: float = field(default_factory=time.monotonic)
    _stopping: bool = False
    _forced: bool = False
    _said_ready: bool = False

    async def run(self) -> int:
        grace = self.config.shutdown_timeout + 20.0
        specs = [
            ChildSpec(name=f"replica-{rank}", factory=partial(self._replica, rank), grace_s=grace)
            for rank in range(len(self.parts))
        ]
        limit = RestartLimit(max_restarts=self.config.max_restarts * len(specs), window_s=RESTART_WINDOW_S)
        supervisor = Supervisor("replicas", specs, limit=limit, on_exit=self._on_exit)
        failure: ChildrenFailed | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch_signals, supervisor, group.cancel_scope)
            try:
                await supervisor.run()
            except ChildrenFailed as error:  # caught here, because the group would wrap it
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        _log.info("stopped")
        return 1 if self._forced else 0

    async def _watch_signals(self, supervisor: Supervisor, scope: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for number in signals:
                if self._stopping:
                    self._forced = True
                    scope.cancel()
                    return
                self._stopping = True
                _log.info("%s: stopping (again: at once)", signal.Signals(number).name)
                supervisor.stop()

    def _replica(self, rank: int) -> ProcessActor[dict[str, Any]]:
        file = self.folder / f"replica-{rank}.json"
        spec = ProcessSpec(
            name=f"replica-{rank}",
            argv=[sys.executable, "-m", "octavo.replicas", str(rank), str(file)],
            env=self.parts[rank].env,
            hello_timeout_s=_HELLO_TIMEOUT_S,
        )
        return ProcessActor(
            spec, StdoutLink(), check_hello=_check_hello, on_message=lambda message: self._on_event(rank, message)
        )

    def _on_event(self, rank: int, message: dict[str, Any]) -> None:
        if message["event"] != "serves":
            return
        self.status.started(rank, str(message["url"]))
        if self.status.show()[0] and not self._said_ready:
            self._said_ready = True
            _log.info("all %d servers are ready after %.1f s", len(self.parts), time.monotonic() - self._began)
            with contextlib.suppress(OSError):  # nobody reads it
                print(f"octavo is ready at {message['url']}", flush=True)

    def _on_exit(self, exit: ChildExit) -> Verdict | None:
        self.status.ended(int(exit.name.rpartition("-")[2]))
        final = isinstance(exit.error, ProcessDied) and exit.error.returncode == _EXIT_FINAL
        return Verdict.GIVE_UP if final else None


def _check_hello(message: dict[str, Any]) -> None:
    if message.get("version") != __version__:
        raise ProtocolError(f"a part of version {message.get('version')} was started by octavo {__version__}")


def _main(rank: str, file: str) -> int:
    """Be one replica: `python -m octavo.replicas RANK FILE`."""
    watch_parent()
    report("started")
    from octavo.serve import serve  # behind the sign of life, for it imports much

    config = build(msgspec.json.decode(Path(file).read_bytes()))
    try:
        return serve(config, name=f"serve-{rank}", on_ready=lambda url: report("serves", url=url))
    except OctavoError as error:
        _log.error("%s", error.message)
        # The frontend of a killed replica may hold its port for a moment longer.
        return _EXIT_FINAL if isinstance(error, ConfigError) and error.param != "port" else 1


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
