"""A real server that speaks gRPC over mutual TLS, and clients with papers of different roles."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from octavo.client import Client, Connection
from tests.e2e.certificates import Authority, Papers
from tests.e2e.server import Server, running

__all__ = ["GrpcWorld", "grpc_world"]

_GRPC_READY = "gRPC is ready at https://"


@dataclass(frozen=True)
class GrpcWorld:
    """A running server, its authority, and the papers of clients by role."""

    server: Server
    target: str  # host:port of gRPC
    authority: Authority
    papers: dict[str, Papers]

    def connection(self, role: str = "all", api_key: str | None = None) -> Connection:
        """Return how a client of a role connects."""
        papers = self.papers[role]
        return Connection(
            self.target,
            api_key=api_key,
            ca_file=self.authority.root,
            cert_file=papers.certificate,
            key_file=papers.key,
        )

    def client(self, role: str = "all", api_key: str | None = None) -> Client:
        """Return a client of a role."""
        return Client(self.connection(role, api_key), timeout=60)

    def http(self) -> httpx.Client:
        """Return a client of the HTTP door, with every role."""
        context = ssl.create_default_context(cafile=str(self.authority.root))
        papers = self.papers["all"]
        context.load_cert_chain(papers.certificate, papers.key)
        return httpx.Client(base_url=self.server.url, verify=context, timeout=60)


@contextlib.contextmanager
def grpc_world(model: Path, folder: Path, *flags: str) -> Iterator[GrpcWorld]:
    """Run a server with client certificates of the roles all, inference and nobody, and a key of the role admin."""
    authority = Authority(folder / "ca")
    papers = {role: authority.issue(role, f"URI:spiffe://test/{role}") for role in ("all", "inference", "nobody")}
    own = authority.issue("server", "DNS:localhost,IP:127.0.0.1")
    keys = folder / "keys"
    keys.write_text("all san:URI:spiffe://test/all\ninference san:URI:spiffe://test/inference\nadmin key-of-an-admin\n")
    tls = ["--ssl-certfile", str(own.certificate), "--ssl-keyfile", str(own.key)]
    tls += ["--ssl-ca-certs", str(authority.root), "--ssl-cert-reqs", "2", "--api-key-file", str(keys)]
    with running(model, *flags, *tls, "--grpc-port", "0") as server:
        assert server.process.stdout is not None
        line = server.process.stdout.readline()
        assert line.startswith(_GRPC_READY), line
        yield GrpcWorld(server, line.removeprefix(_GRPC_READY).strip(), authority, papers)
