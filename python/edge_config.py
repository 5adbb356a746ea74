"""Settings of the HTTP edge: TLS, sockets, limits and time-outs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from octavo.errors import ConfigError
from octavo.setting import choice, count, flag, or_none, seconds, setting, switched
from octavo.setting_values import file

__all__ = ["EdgeConfig", "EdgeSettings", "TlsConfig"]


class TlsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The PEM files of TLS."""

    certfile: str  # the certificate, and those between it and a root
    keyfile: str
    ca_certs: str | None = None  # roots of client certificates
    cert_reqs: int = 0  # client certificates: 0 not asked for, 1 checked where shown, 2 required
    crl: str | None = None  # revocation lists of every issuer of clients


class EdgeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the Rust frontend is told of its edge (in frontend.json)."""

    tls: TlsConfig | None = None  # None: plain HTTP
    max_connections: int = 16384  # more wait to be accepted
    max_body_bytes: int = 32 << 20  # larger ones get 413
    idle_timeout_s: float = 120.0  # connections without a request are closed
    stall_timeout_s: float = 60.0  # clients that neither send nor take what is due are disconnected
    request_timeout_s: float = 0.0  # requests that take longer end with an error; 0: never
    max_open_tokens: int | None = None  # of all open requests, prompt and possible output; more get 429
    max_requests_per_key: int | None = None  # open at once; more get 429
    access_log: bool = False  # a line of JSON for each request
    log_prompts: bool = False  # the log shows what clients send


def _number(*numbers: int) -> Any:
    parse = choice(*map(str, numbers))
    return lambda text: int(parse(text))


#: Where the defaults stand.
_USUAL = EdgeConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeSettings:
    """The flags of the edge. One that the frontend is told has the name of the field in EdgeConfig, less its unit."""

    uds: str | None = setting(
        None, or_none("none", str), "Server", "Unix socket to listen on instead of a port", "PATH|none"
    )
    grpc_port: int | None = setting(
        None,
        or_none("none", count(0, 65535)),
        "Server",
        "port of --host for gRPC too, with the same TLS, keys and limits; 0: a free one, printed when ready",
        "PORT|none",
    )
    ssl_certfile: Path | None = setting(  # noqa: RUF009  # a field, as all others
        None,
        or_none("none", file),
        "TLS",
        "PEM file with the server's certificate and those between it and a root: HTTPS; read again when it changes",
        "FILE|none",
    )
    ssl_keyfile: Path | None = setting(  # noqa: RUF009  # a field, as all others
        None, or_none("none", file), "TLS", "PEM file with its key; default: it is in --ssl-certfile", "FILE|none"
    )
    ssl_ca_certs: Path | None = setting(  # noqa: RUF009  # a field, as all others
        None, or_none("none", file), "TLS", "PEM file with the roots of client certificates", "FILE|none"
    )
    ssl_cert_reqs: int = setting(
        0, _number(0, 1, 2), "TLS", "client certificates: 0 not asked for, 1 checked where shown, 2 required", "0|1|2"
    )
    ssl_crl: Path | None = setting(  # noqa: RUF009  # a field, as all others
        None,
        or_none("none", file),
        "TLS",
        "PEM file with revocation lists, one of every issuer of clients",
        "FILE|none",
    )
    max_connections: int = setting(
        _USUAL.max_connections,
        count(1),
        "Limits",
        "connections that are open at once; further clients wait to be accepted",
    )
    max_body_bytes: int = setting(
        _USUAL.max_body_bytes,
        count(1),
        "Limits",
        "largest body of a request; larger ones are answered with 413",
        "BYTES",
    )
    idle_timeout: float = setting(
        _USUAL.idle_timeout_s, seconds, "Limits", "a connection without a request is closed after so long", "SECONDS"
    )
    stall_timeout: float = setting(
        _USUAL.stall_timeout_s,
        seconds,
        "Limits",
        "a client that neither sends the rest of its request nor takes its answer is let go after so long",
        "SECONDS",
    )
    request_timeout: float = setting(
        _USUAL.request_timeout_s,
        seconds,
        "Limits",
        "a request that takes longer ends with an error; 0: no limit",
        "SECONDS",
    )
    max_open_tokens: int | None = setting(
        _USUAL.max_open_tokens,
        or_none("none", count(1)),
        "Limits",
        "tokens of all open requests together, prompt and max_tokens; more are answered with 429",
        "N|none",
    )
    max_requests_per_key: int | None = setting(
        _USUAL.max_requests_per_key,
        or_none("none", count(1)),
        "Limits",
        "requests that one API key or client certificate may have open; more are answered with 429",
        "N|none",
    )
    access_log: bool = switched(
        _USUAL.access_log, "Server", "a line of JSON for each request, without what was said in it"
    )
    log_prompts: bool = switched(_USUAL.log_prompts, "Server", "show the bodies of requests in the log")

    @property
    def encrypted(self) -> bool:
        """Whether clients speak TLS."""
        return self.ssl_certfile is not None

    def edge(self) -> EdgeConfig:
        """Return what the frontend is told. Raises ConfigError for flags that contradict each other."""
        told = {name: getattr(self, name.removesuffix("_s")) for name in EdgeConfig.__struct_fields__ if name != "tls"}
        return EdgeConfig(tls=self._tls(), **told)

    def _tls(self) -> TlsConfig | None:
        needs = {
            "ssl_keyfile": (self.ssl_keyfile is not None, "ssl_certfile", self.ssl_certfile),
            "ssl_ca_certs": (self.ssl_ca_certs is not None, "ssl_certfile", self.ssl_certfile),
            "ssl_cert_reqs": (self.ssl_cert_reqs > 0, "ssl_ca_certs", self.ssl_ca_certs),
            "ssl_crl": (self.ssl_crl is not None, "ssl_ca_certs", self.ssl_ca_certs),
        }
        for name, (given, other, value) in needs.items():
            if given and value is None:
                raise ConfigError(f"{flag(name)} needs {flag(other)}", name)
        if self.ssl_certfile is None:
            return None
        return TlsConfig(
            certfile=str(self.ssl_certfile),
            keyfile=str(self.ssl_keyfile or self.ssl_certfile),
            ca_certs=None if self.ssl_ca_certs is None else str(self.ssl_ca_certs),
            cert_reqs=self.ssl_cert_reqs,
            crl=None if self.ssl_crl is None else str(self.ssl_crl),
        )
