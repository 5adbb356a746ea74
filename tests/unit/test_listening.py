"""The socket of `octavo serve`."""

from __future__ import annotations

import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.errors import ConfigError
from octavo.listening import grpc_listening, listening


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: paths of Unix sockets have at most 107 letters."""
    with tempfile.TemporaryDirectory(prefix="oct") as name:
        yield Path(name)


def test_a_host_that_does_not_exist_is_named() -> None:
    with (
        pytest.raises(ConfigError, match=r"--host no\.such\.host\.invalid"),
        listening("no.such.host.invalid", 0, None, tls=False),
    ):
        pass


@pytest.mark.parametrize(
    ("host", "tls", "url"),
    [
        ("127.0.0.1", False, "http://127.0.0.1:"),
        ("127.0.0.1", True, "https://127.0.0.1:"),
        ("::1", False, "http://[::1]:"),
    ],
)
def test_urls_of_both_families(host: str, tls: bool, url: str) -> None:
    try:
        with listening(host, 0, None, tls=tls) as place:
            assert place.url.startswith(url)
            assert not place.exposed
    except ConfigError as error:
        pytest.skip(str(error))  # no IPv6 here


def test_a_unix_socket_is_there_while_the_server_is(folder: Path) -> None:
    path = folder / "octavo.sock"
    with listening("", 0, str(path), tls=False) as place:
        assert place.url == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
    assert not path.exists()


def test_a_socket_that_nobody_serves_is_replaced_and_nothing_else_is(folder: Path) -> None:
    path = folder / "octavo.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with (
        listening("", 0, str(path), tls=False),
        pytest.raises(ConfigError, match="running server"),
        listening("", 0, str(path), tls=False),
    ):
        pass
    path.write_text("a file of the user's")
    with pytest.raises(ConfigError, match=f"--uds {path}"), listening("", 0, str(path), tls=False):
        pass
    assert path.read_text() == "a file of the user's"


def test_a_path_that_is_too_long_is_named(folder: Path) -> None:
    with pytest.raises(ConfigError, match="--uds"), listening("", 0, str(folder / ("x" * 200)), tls=False):
        pass


def test_a_port_of_grpc_that_is_in_use_is_named() -> None:
    with grpc_listening("127.0.0.1", None, tls=False) as none:
        assert none is None
    with grpc_listening("127.0.0.1", 0, tls=True) as door:
        assert door is not None and door.url.startswith("https://127.0.0.1:") and not door.exposed
        port = door.socket.getsockname()[1]
        with pytest.raises(ConfigError, match="--grpc-port"), grpc_listening("127.0.0.1", port, tls=False):
            pass
