"""The folder of one running server: sockets, the files that its processes are configured by, the tokenizer."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["run_folder"]

_PREFIX = "octavo-"
_PID_FILE = "pid"


@contextlib.contextmanager
def run_folder() -> Iterator[Path]:
    """Make a folder that only this user can enter; remove it at the end.

    It lies in $XDG_RUNTIME_DIR or the temp folder. Folders of servers that were killed are removed on the way.
    """
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    _sweep(base)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    try:
        (folder / _PID_FILE).write_text(str(os.getpid()))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
