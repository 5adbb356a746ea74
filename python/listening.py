"""The socket that clients connect to: bound here, before anything is loaded, and inherited by the frontend."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import ConfigError
from octavo.setting import flag

__all__ = ["Listening", "grpc_listening", "listening"]

_BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class Listening:
    """A socket that listens, and how clients name it."""

    socket: socket.socket
    url: str  # "http://…", "https://…" or "unix:/path"
    exposed: bool  # whether other machines, or other users of a Unix socket's folder, may reach it


@contextlib.contextmanager
def listening(host: str, port: int, uds: str | None, *, tls: bool) -> Iterator[Listening]:
    """Listen on a port, or on a Unix socket, which is removed at the end; raises ConfigError where that cannot be."""
    if uds is None:
        with _bind(host, port) as bound:
            yield Listening(bound, _url(bound, tls), not _is_loopback(bound))
        return
    path = Path(uds).absolute()
    with _bind_unix(path) as bound:
        try:
            yield Listening(bound, f"unix:{path}", False)
        finally:
            with contextlib.suppress(OSError):
                path.unlink()


@contextlib.contextmanager
def grpc_listening(host: str, port: int | None, *, tls: bool) -> Iterator[Listening | None]:
    """Listen on a port for gRPC; None: there is none. Raises ConfigError where that cannot be."""
    if port is None:
        yield None
        return
    with _bind(host, port, "grpc_port") as bound:
        yield Listening(bound, _url(bound, tls), not _is_loopback(bound))


def _bind(host: str, port: int, name: str = "port") -> socket.socket:
    """Bind a port; `name` is the setting that it comes from."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except socket.gaierror as error:
        raise ConfigError(f"--host {host}: no such address ({error.strerror})", "host") from None
    except OSError as error:
        help = f"; choose another {flag(name)}, or 0 for a free one" if error.errno in (13, 98) else ""
        reason = "the port is in use" if error.errno == 98 else (error.strerror or str(error))
        raise ConfigError(f"cannot listen on {host} port {port}: {reason}{help}", name) from None


def _bind_unix(path: Path) -> socket.socket:
    """Bind a path; the socket of a server that was killed is replaced, that of one that lives is not."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if _is_abandoned(path):
            path.unlink()
        bound.bind(str(path))
        os.chmod(path, 0o660)  # the group may talk to the server, others may not
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        if not path.parent.is_dir():
            raise ConfigError(f"--uds {path}: there is no folder {path.parent}: make it first", "uds") from None
        reason = (
            "there is a file or a running server already"
            if error.errno == errno.EADDRINUSE
            else (error.strerror or str(error))
        )
        raise ConfigError(f"--uds {path}: {reason}", "uds") from None
    return bound


def _is_abandoned(path: Path) -> bool:
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return False
    except OSError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            pass
    return False


def _url(bound: socket.socket, tls: bool) -> str:
    host, port = bound.getsockname()[:2]
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _is_loopback(bound: socket.socket) -> bool:
    return ipaddress.ip_address(bound.getsockname()[0].partition("%")[0]).is_loopback
