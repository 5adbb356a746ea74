"""`octavo serve`: resolve the model, bind the port, start the frontend and the engine core, look after them."""

from __future__ import annotations

import contextlib
import difflib
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import octavo_native

from octavo import __version__, log
from octavo.actors.errors import ChildrenFailed, ProcessDied
from octavo.actors.link import StdoutLink
from octavo.actors.process import ProcessActor, ProcessSpec
from octavo.actors.supervisor import ChildExit, ChildSpec, RestartLimit, Supervisor, Verdict
from octavo.config import FrontendConfig, ServeConfig
from octavo.engine_settings import RESTART_WINDOW_S, core_folder, engine_config, model_files, tokenizer_source
from octavo.errors import ConfigError, EngineError, OctavoError, ProtocolError
from octavo.listening import Listening, grpc_listening, listening
from octavo.modelfiles import ModelFiles, export_tokenizer
from octavo.modelfiles.generation import GenerationSource
from octavo.pooling import pooling_plan
from octavo.runfolder import own_folder, run_folder, writing

__all__ = ["frontend_program", "serve"]

_log = logging.getLogger("octavo.serve")

#: A part that leaves with one of these has said why, and would leave again: settings or files; restarts used up.
_EXIT_FINAL = 2
_EXIT_EXHAUSTED = 3


def tell_ready(url: str) -> None:
    """Say on stdout, for scripts, where clients find the server."""
    with contextlib.suppress(OSError):  # nobody reads it
        print(f"octavo is ready at {url}", flush=True)


def serve(config: ServeConfig, name: str = "serve", on_ready: Callable[[str], None] = tell_ready) -> int:
    """Serve until SIGINT or SIGTERM; return the exit code. `name` is this process's in the log.

    Raises ConfigError, ModelError before anything has started; ChildrenFailed when a part failed too often.
    """
    _open_standard_files()
    log.setup(name, config.log_level)
    began = time.monotonic()
    frontend = frontend_program()
    _check_versions(frontend)
    _check_parsers(config)
    files = model_files(config)
    listens = listening(config.host, config.port, config.uds, tls=config.encrypted)
    listens_grpc = grpc_listening(config.host, config.grpc_port, tls=config.encrypted)
    with listens as listener, listens_grpc as grpc, run_folder() as folder, _weight_store(config) as store:
        generation = GenerationSource(config.generation_config, config.override_generation_config)
        with writing(folder):
            export_tokenizer(files, folder / "tokenizer", tokenizer_source(config), config.chat_template, generation)
            _write_configs(config, files, [listener, grpc], folder, store)
        _check_frontend(frontend, folder)
        asks = config.api_key or config.api_key_file is not None or config.ssl_cert_reqs == 2
        for door in (listener, grpc):
            if door is not None and door.exposed and not asks:
                _log.warning("%s can be reached from elsewhere and asks for no key: give --api-key", door.url)
        count = config.tensor_parallel_size * config.data_parallel_size
        workers = f"{count} worker" + ("s" if count > 1 else "")
        _log.info("loading %s (%s, %s) for %s", config.model, files.architecture, workers, listener.url)
        reloads = not _has_terminal()
        server = _Server(config, frontend, listener, folder, began, on_ready, reloads=reloads, grpc=grpc)
        return anyio.run(server.run)


def _open_standard_files() -> None:
    """Let 0, 1 and 2 be open, if only for nothing, so that no socket gets their numbers."""
    while (number := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(number)


def _has_terminal() -> bool:
    """Whether SIGHUP may say that the terminal is gone, which ends the server; services have none."""
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # nohup
        return True
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def frontend_program() -> str:
    """Return the path of octavo-frontend: $OCTAVO_FRONTEND, beside this Python, or on the PATH."""
    beside = shutil.which("octavo-frontend", path=sysconfig.get_path("scripts"))
    program = os.environ.get("OCTAVO_FRONTEND") or beside or shutil.which("octavo-frontend")
    if program is None:
        raise ConfigError("the program octavo-frontend is not installed: run `pip install octavo-frontend`")
    return program


def _check_versions(frontend: str) -> None:
    """Refuse to run with parts of another version; raises ConfigError that names both."""
    try:
        told = subprocess.run([frontend, "--version"], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"{frontend} --version does not work ({error}): reinstall octavo-frontend") from None
    versions = {"octavo-frontend": told.strip().rpartition(" ")[2], "octavo-native": octavo_native.__version__}
    for name, version in versions.items():
        if version != __version__:
            raise ConfigError(
                f"octavo {__version__} cannot work with {name} {version}: run `pip install {name}=={__version__}`"
            )


def _check_parsers(config: ServeConfig) -> None:
    """Refuse names of formats that nobody knows; raises ConfigError. Files of formats are the frontend's to read."""
    if config.format_file:
        return
    given = (("--tool-call-parser", config.tool_call_parser), ("--reasoning-parser", config.reasoning_parser))
    for (flag, name), known in zip(given, octavo_native.parser_names(), strict=True):
        if name and name not in ("auto", *known):
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are auto, {', '.join(known)}"
            raise ConfigError(f"{flag} {name}: there is no such format; {hint}")


def _check_frontend(frontend: str, folder: Path) -> None:
    """Let the frontend read its keys and certificates before weights are; raises ConfigError with what it says."""
    command = [frontend, "--config", str(folder / "frontend.json"), "--check"]
    checked = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False)
    if checked.returncode != 0:
        raise ConfigError(_last_record(checked.stderr.splitlines() or [f"{frontend} --check failed"]))


@contextlib.contextmanager
def _weight_store(config: ServeConfig) -> Iterator[str]:
    """Make this server's folder in --weight-store, if there is to be one, and remove it at the end."""
    if config.weight_store is None:
        yield ""
        return
    with contextlib.suppress(OSError):  # then making a folder in it says why
        config.weight_store.mkdir(parents=True, exist_ok=True)
    with own_folder(config.weight_store, "give --weight-store a folder that you may write to") as folder:
        yield str(folder)


def _write_configs(
    config: ServeConfig, files: ModelFiles, doors: Sequence[Listening | None], folder: Path, weight_store: str
) -> None:
    """Write what frontend and engine core are told; `doors` are the sockets of HTTP and of gRPC."""
    listen_fd, grpc_listen_fd = (None if door is None else door.socket.fileno() for door in doors)
    assert listen_fd is not None
    ranks = range(config.data_parallel_size)
    endpoints = [f"ipc://{core_folder(folder, config, rank)}/frontend.sock" for rank in ranks]
    key = secrets.token_hex(16)
    frontend = FrontendConfig(
        listen_fd=listen_fd,
        grpc_listen_fd=grpc_listen_fd,
        engine_endpoints=endpoints,
        link_key=key,
        tokenizer_dir=str(folder / "tokenizer"),
        served_model_names=list(config.names),
        seed=config.seed,
        max_open_requests=config.max_open_requests,
        max_logprobs=config.max_logprobs,
        replay_timeout_s=config.replay_timeout,
        shutdown_timeout_s=config.shutdown_timeout,
        scheduling_policy=config.scheduling_policy,
        tool_call_parser=config.tool_call_parser or None,
        reasoning_parser=config.reasoning_parser or None,
        enable_auto_tool_choice=config.enable_auto_tool_choice,
        format_files=[str(path) for path in config.format_file],
        api_keys=list(config.api_key),
        api_key_file=None if config.api_key_file is None else str(Path(config.api_key_file).resolve()),
        response_store=str(Path(config.response_store or folder / "responses.sqlite").resolve()),
        response_store_max_bytes=config.response_store_max_bytes,
        response_store_max_age_s=config.response_store_max_age,
        otlp_traces_endpoint=config.otlp_traces_endpoint,
        log_level=config.log_level,
        trust_request_chat_template=config.trust_request_chat_template,
        enable_prompt_embeds=config.enable_prompt_embeds,
        enable_per_request_metrics=config.enable_per_request_metrics,
        edge=config.edge(),
        pooling=pooling_plan(config, files),
    )
    (folder / "frontend.json").write_bytes(msgspec.json.encode(frontend))
    for rank, endpoint in zip(ranks, endpoints, strict=True):
        place = core_folder(folder, config, rank)
        store = weight_store and str(core_folder(Path(weight_store), config, rank))
        for made in (place, *([Path(store)] if store else [])):
            made.mkdir(mode=0o700, exist_ok=True)
        engine = engine_config(config, files, folder, endpoint, store, rank)
        (place / "engine.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(engine, link_key=key)))


@dataclass
class _Server:
    """The supervisor's state while the server runs."""

    config: ServeConfig
    frontend: str
    listener: Listening
    folder: Path
    began: float
    on_ready: Callable[[str], None] = tell_ready
    reloads: bool = False  # SIGHUP means that files are to be read again
    grpc: Listening | None = None
    _frontend_pid: int | None = None
    _up: set[str] = field(default_factory=set)
    _said_ready: bool = False
    _stopping: bool = False
    _forced: bool = False  # by a second signal
    _on_trial: frozenset[str] = frozenset()  # engine cores that requests may have killed, which the frontend tries
    _supervisor: Supervisor | None = None

    async def run(self) -> int:
        supervisor = Supervisor(
            "serve",
            [
                *(
                    ChildSpec(name=name, factory=partial(self._engine, name, rank), grace_s=15.0)
                    for rank, name in enumerate(self._engines)
                ),
                ChildSpec(name="frontend", factory=self._frontend, grace_s=self.config.shutdown_timeout + 10.0),
            ],
            limit=RestartLimit(max_restarts=self.config.max_restarts, window_s=RESTART_WINDOW_S),
            on_exit=self._on_exit,
        )
        self._supervisor = supervisor
        failure: ChildrenFailed | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch_signals, group.cancel_scope)
            try:
                await supervisor.run()
            except ChildrenFailed as error:  # caught here, because the group would wrap it
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise _reason(failure)
        _log.info("stopped")
        return 1 if self._forced else 0

    async def _watch_signals(self, scope: anyio.CancelScope) -> None:
        """Stop in order at the first signal, at once at the second; SIGHUP without a terminal is for the frontend."""
        numbers = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if self.reloads else [])]
        with anyio.open_signal_receiver(*numbers) as signals:
            async for number in signals:
                if number == signal.SIGHUP:
                    self._reload()
                    continue
                if self._stopping:
                    _log.warning("%s again: stopping at once", signal.Signals(number).name)
                    self._forced = True
                    scope.cancel()
                    return
                self._stop(signal.Signals(number).name, " (again: at once)")

    def _stop(self, why: str, note: str = "") -> None:
        """Begin the end."""
        self._stopping = True
        patience = self.config.shutdown_timeout
        wait = f"; running requests have {patience:g} s" if patience else ""
        _log.info("%s: stopping%s%s", why, wait, note)
        assert self._supervisor is not None
        self._supervisor.stop()

    def _reload(self) -> None:
        """Let the frontend read its keys and certificates again."""
        if self._frontend_pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._frontend_pid, signal.SIGHUP)

    @property
    def _engines(self) -> list[str]:
        """The names of the engine cores, by data-parallel rank."""
        size = self.config.data_parallel_size
        return ["engine"] if size == 1 else [f"engine-{rank}" for rank in range(size)]

    def _engine(self, name: str, rank: int) -> ProcessActor[dict[str, Any]]:
        config = core_folder(self.folder, self.config, rank) / "engine.json"
        return self._process(name, [sys.executable, "-m", "octavo.engine_core", "--config", str(config)], ())

    def _frontend(self) -> ProcessActor[dict[str, Any]]:
        argv = [self.frontend, "--config", str(self.folder / "frontend.json")]
        doors = (self.listener, self.grpc)
        return self._process("frontend", argv, tuple(door.socket.fileno() for door in doors if door is not None))

    def _process(self, name: str, argv: list[str], fds: tuple[int, ...]) -> ProcessActor[dict[str, Any]]:
        return ProcessActor(
            ProcessSpec(
                name=name,
                argv=argv,
                pass_fds=fds,
                hang_timeout_s=self.config.process_timeout or None,
                dump_signal=signal.SIGUSR1 if name in self._engines else None,
            ),
            StdoutLink(),
            check_hello=_check_hello,
            on_message=lambda message: self._on_event(name, message),
        )

    def _on_event(self, name: str, message: dict[str, Any]) -> None:
        if message["event"] == "trial":
            tried = self._engines[int(message.get("rank", 0))]
            self._on_trial = self._on_trial | {tried} if message.get("active") else self._on_trial - {tried}
        if message["event"] == "shutdown" and not self._stopping:
            self._stop("a client asks for the end")
        if message["event"] not in ("listening", "ready"):
            return
        if message["event"] == "listening":
            self._frontend_pid = int(message["pid"])
        self._up.add(name)
        if len(self._up) == len(self._engines) + 1 and not self._said_ready and not self._stopping:
            self._said_ready = True
            url = self.listener.url
            seconds = time.monotonic() - self.began
            _log.info("%s is served at %s after %.1f s", self.config.names[0], url, seconds)
            self.on_ready(url)
            if self.grpc is not None:
                with contextlib.suppress(OSError):
                    print(f"gRPC is ready at {self.grpc.url}", flush=True)

    def _on_exit(self, exit: ChildExit) -> Verdict | None:
        if isinstance(exit.error, ProcessDied) and exit.error.returncode in (_EXIT_FINAL, _EXIT_EXHAUSTED):
            return Verdict.GIVE_UP
        # What a trial costs is bounded by the trial.
        return Verdict.RESTART_UNCOUNTED if exit.name in self._on_trial else None


def _reason(failure: ChildrenFailed) -> OctavoError:
    """Return what to tell the user: the last thing that a part said about why it cannot go on."""
    for cause in reversed(failure.causes):
        if isinstance(cause, ProcessDied) and cause.stderr:
            if cause.returncode == _EXIT_FINAL:
                return ConfigError(_last_record(cause.stderr))
            if cause.returncode == _EXIT_EXHAUSTED:
                return EngineError(_last_record(cause.stderr))
    return failure


def _last_record(lines: Sequence[str]) -> str:
    """Return the last message of a log: the lines with the last one's head (clock, level, process), without it."""
    last = lines[-1].split(maxsplit=3)
    head = last[:3]
    record: list[str] = []
    for line in reversed(lines):
        parts = line.split(maxsplit=3)
        if parts[:3] != head:
            break
        record.insert(0, " ".join(parts[3:]))
    return "\n".join(record) if len(last) == 4 else lines[-1]


def _check_hello(message: dict[str, Any]) -> None:
    version = message.get("version")
    if version != __version__:
        raise ProtocolError(f"a part of version {version} was started by octavo {__version__}: reinstall octavo")
