"""The server that `octavo chat` and `octavo complete` talk to: a running one, or one of their own."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import IO, Any

from octavo.cli.api import Api
from octavo.cli.flags import add_settings
from octavo.cli.serve import configuration, given_settings
from octavo.config import flag, settings
from octavo.errors import ConfigError, OctavoError

__all__ = ["DEFAULT_URL", "READY", "add_flags", "address", "ready_line", "started", "stop"]

READY = "octavo is ready at "
DEFAULT_URL = "http://127.0.0.1:8000"
_STOP_TIMEOUT_S = 30.0
_PR_SET_PDEATHSIG = 1


def add_flags(command: argparse.ArgumentParser) -> None:
    """Add the flags that say whom to talk to, and those of a server of one's own."""
    group = command.add_argument_group("server to talk to")
    group.add_argument("--url", metavar="URL", help=f"a running server (default: {DEFAULT_URL}, unless MODEL is given)")
    group.add_argument("--model-name", metavar="NAME", help="one of the server's models (default: its first)")
    group.add_argument(
        "--api-key",
        metavar="KEY",
        default=os.environ.get("OPENAI_API_KEY", ""),
        help="the server's key (default: $OPENAI_API_KEY)",
    )
    group.add_argument("--config", metavar="FILE", help="YAML file with settings of a server of one's own")
    # Its own server gets a key of its own, and is reached over the loopback alone.
    edge = [setting.name for setting in settings() if setting.group == "TLS"]
    add_settings(command, model_required=False, without=["api_key", "uds", *edge])


@contextlib.contextmanager
def address(arguments: argparse.Namespace) -> Iterator[Api]:
    """Yield a client of the server that the flags name; one that was started for it ends with the block.

    Raises ConfigError for flags that contradict each other, OctavoError where no server can be had.
    """
    typed = given_settings(arguments)
    typed.pop("api_key")  # the client's, by the same name
    if "model" not in typed:
        strange = [name for name in typed if name != "seed"]
        if strange:
            raise ConfigError(f"{flag(strange[0])} is for a server of one's own: give MODEL too", strange[0])
        yield Api(arguments.url or DEFAULT_URL, arguments.api_key)
        return
    if arguments.url:
        raise ConfigError("give MODEL or --url, not both: MODEL starts a server of one's own", "url")
    configuration(arguments)  # for its errors, before a process starts
    words: dict[str, Any] = {"port": "0", "log_level": "warning"} | typed
    key = secrets.token_urlsafe(24)
    with started(_command(words, arguments.config), os.environ | {"OCTAVO_API_KEY": key}) as url:
        yield Api(url, key)


def _command(words: dict[str, Any], file: str | None) -> list[str]:
    command = [sys.executable, "-m", "octavo", "serve", words["model"]]
    command += ["--config", file] if file else []
    for setting in settings():
        if setting.name not in words or setting.positional:
            continue
        value = words[setting.name]
        if setting.switch:
            command.append(setting.flag if value == "true" else f"--no-{setting.flag[2:]}")
        else:
            command += [setting.flag, *([value] if isinstance(value, str) else value)]
    return command


@contextlib.contextmanager
def started(command: list[str], environment: Mapping[str, str]) -> Iterator[str]:
    """Start `octavo serve`, yield its address when it is ready, and stop it at the end.

    It gets a process group of its own: Ctrl-C ends an answer, not the server. Raises OctavoError when it ends early.
    """
    server = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        process_group=0,
        preexec_fn=_end_with_parent,
    )
    try:
        assert server.stdout is not None
        yield ready_line(server.stdout)
    finally:
        stop(server)


def _end_with_parent() -> None:
    """Let the kernel stop this process when the terminal's one dies (Linux; elsewhere only `stop` does)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def ready_line(lines: IO[str]) -> str:
    """Return the address that a starting server prints; raises OctavoError when it ends before."""
    for line in lines:
        if line.startswith(READY):
            # The pipe must not fill up, whatever the server prints later.
            threading.Thread(target=lines.read, daemon=True).start()
            return line.removeprefix(READY).strip()
    raise OctavoError("the server ended before it was ready; its log above says why")


def stop(server: subprocess.Popen[str]) -> int:
    """Stop a server as Ctrl-C would and return its exit code."""
    if server.poll() is None:
        server.send_signal(signal.SIGINT)
    try:
        return server.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        server.kill()
        return server.wait()
