"""The folder of one running server: sockets, the files that its processes are configured by, the tokenizer."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from octavo.errors import NO_ROOM, ConfigError

__all__ = ["own_folder", "run_folder", "writing"]

_PREFIX = "octavo-"
_PID_FILE = "pid"
_ADVICE = "set XDG_RUNTIME_DIR to a short path of a folder that you may write to, such as /tmp"
#: Of a path to a Unix socket, in bytes, on Linux.
_MAX_SOCKET_PATH = 107
_LONGEST_NAME = len("/r63/worker-63.63-0123abcd-out.sock")


@contextlib.contextmanager
def run_folder() -> Iterator[Path]:
    """Make a folder that only this user can enter; remove it at the end.

    It lies in $XDG_RUNTIME_DIR or the temp folder. Folders of servers that were killed are removed on the way.
    """
    named = os.environ.get("XDG_RUNTIME_DIR")
    base = Path(named or tempfile.gettempdir())
    with own_folder(base, _ADVICE) as folder:
        if len(os.fsencode(folder)) + _LONGEST_NAME > _MAX_SOCKET_PATH:
            raise ConfigError(f"the path {base} is too long for sockets, by the system's limit; {_ADVICE}")
        yield folder


@contextlib.contextmanager
def own_folder(base: Path, advice: str) -> Iterator[Path]:
    """Make a folder in `base` that only this user can enter; remove it at the end, and those of killed servers now.

    Raises ConfigError, with the advice, if that cannot be.
    """
    _sweep(base)
    try:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base.absolute()))
    except OSError as error:
        raise ConfigError(f"cannot make a folder in {base} ({error.strerror}); {advice}") from None
    try:
        with writing(folder):
            (folder / _PID_FILE).write_text(str(os.getpid()))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Write to a run folder; raises ConfigError, which says what to do, where there is no room for it."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise ConfigError(
            f"cannot write to {folder}: {error.strerror}. Free some space there, or set XDG_RUNTIME_DIR to a folder "
            "that has some."
        ) from None


def _sweep(base: Path) -> None:
    for folder in base.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError, ValueError):
            pid = int((folder / _PID_FILE).read_text())
            if folder.stat().st_uid == os.getuid() and not _alive(pid):
                shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
