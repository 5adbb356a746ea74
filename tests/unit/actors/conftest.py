from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import zmq

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A 0700 folder with a path short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="octavo-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    """Fail the test if it leaves a socket open."""
    context = zmq.Context()
    yield context
    left = [socket for socket in context._sockets if not socket.closed]
    context.destroy(linger=0)
    assert left == []


@pytest.fixture
def open_files() -> Iterator[set[str]]:
    """Fail the test if it leaves a file descriptor behind."""
    before = _open_files()
    yield before
    assert _open_files() <= before


def _open_files() -> set[str]:
    return set(os.listdir("/proc/self/fd"))
