"""Where a server is and how it is spoken to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from octavo.errors import ConfigError

__all__ = ["Connection"]

#: Pings of a call that is silent for long; the server answers any number.
_OPTIONS = [
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", 32 << 10),
]


@dataclass(frozen=True, slots=True)
class Connection:
    """A server's address, a key, and certificates.

    `target` is "host:port", as gRPC writes it. Without `ca_file` the connection is plain; with it the server's
    certificate is checked against these roots. `cert_file` and `key_file` are the client's own.
    """

    target: str
    api_key: str | None = None
    ca_file: Path | str | None = None
    cert_file: Path | str | None = None
    key_file: Path | str | None = None
    options: tuple[tuple[str, Any], ...] = ()  # further options of the channel

    def metadata(self) -> list[tuple[str, str]]:
        """Return what goes with each call."""
        return [] if self.api_key is None else [("authorization", f"Bearer {self.api_key}")]

    def channel(self) -> Any:
        """Open a channel for threads."""
        options = [*_OPTIONS, *self.options]
        credentials = self._credentials()
        if credentials is None:
            return grpc.insecure_channel(self.target, options)
        return grpc.secure_channel(self.target, credentials, options)

    def aio_channel(self) -> Any:
        """Open a channel for the event loop that runs."""
        options = [*_OPTIONS, *self.options]
        credentials = self._credentials()
        if credentials is None:
            return grpc.aio.insecure_channel(self.target, options)
        return grpc.aio.secure_channel(self.target, credentials, options)

    def _credentials(self) -> Any:
        """Return TLS credentials; None without TLS. Raises ConfigError if half of a pair is missing."""
        if (self.cert_file is None) != (self.key_file is None):
            raise ConfigError("cert_file and key_file go together: give both or none", "cert_file")
        if self.ca_file is None:
            if self.cert_file is not None:
                raise ConfigError("a client certificate needs ca_file, the roots of the server's", "ca_file")
            return None
        return grpc.ssl_channel_credentials(_read(self.ca_file), _read(self.key_file), _read(self.cert_file))


def _read(path: Path | str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()
