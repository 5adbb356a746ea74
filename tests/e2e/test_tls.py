"""TLS as clients see it: openssl, curl and the official SDK, with certificates of every kind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import openai
import pytest

from octavo.edge_config import EdgeConfig, TlsConfig
from tests.e2e.certificates import Authority, Papers
from tests.e2e.frontend import Frontend, bare_frontend
from tests.e2e.server import Server, running, wait_for

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="certificates are made with openssl")

GOOD, MISSING = "good", "missing"
KINDS = (GOOD, MISSING, "wrong", "expired", "revoked")
VERSIONS = ("1.2", "1.3")
#: By --ssl-cert-reqs: the kinds of client certificates with which a client is answered.
ANSWERED = {0: set(KINDS), 1: {GOOD, MISSING}, 2: {GOOD}}


@dataclass(frozen=True)
class World:
    """An authority, the server's papers and those of clients of every kind."""

    authority: Authority
    server: Papers
    clients: dict[str, Papers]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("ca")
    authority = Authority(folder / "own")
    stranger = Authority(folder / "other", "other root")
    clients = {
        GOOD: authority.issue("good", "URI:spiffe://test/good"),
        "wrong": stranger.issue("wrong", "URI:spiffe://test/good"),
        "expired": authority.issue("expired", "URI:spiffe://test/good", expired=True),
        "revoked": authority.issue("revoked", "URI:spiffe://test/good"),
    }
    authority.revoke(clients["revoked"])
    return World(authority, authority.issue("server", "DNS:localhost,IP:127.0.0.1"), clients)


@pytest.fixture(scope="module", params=[0, 1, 2], ids=["none", "optional", "required"])
def asking(request: pytest.FixtureRequest, world: World, tiny: Path) -> Iterator[tuple[int, Frontend]]:
    """A frontend for each --ssl-cert-reqs."""
    tls = TlsConfig(
        certfile=str(world.server.certificate),
        keyfile=str(world.server.key),
        ca_certs=str(world.authority.root),
        cert_reqs=request.param,
        crl=str(world.authority.crl),
    )
    with bare_frontend(tiny, EdgeConfig(tls=tls)) as frontend:
        yield request.param, frontend


def by_openssl(port: int, world: World, version: str, papers: Papers | None) -> bool:
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile", str(world.authority.root)]
    command += [f"-tls{version.replace('.', '_')}", "-alpn", "http/1.1", "-quiet", "-verify_return_error"]
    command += ["-cert", str(papers.certificate), "-key", str(papers.key)] if papers else []
    request = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    done = subprocess.run(command, input=request, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.startswith("HTTP/1.1 200")


def by_curl(port: int, world: World, version: str, papers: Papers | None) -> bool:
    command = ["curl", "-s", "--max-time", "20", "--cacert", str(world.authority.root)]
    command += [f"--tlsv{version}", "--tls-max", version, "-o", os.devnull, "-w", "%{http_code}"]
    command += ["--cert", str(papers.certificate), "--key", str(papers.key)] if papers else []
    done = subprocess.run([*command, f"https://localhost:{port}/health"], capture_output=True, text=True, check=False)
    return done.stdout == "200"


def context(world: World, version: str, papers: Papers | None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(world.authority.root))
    made.minimum_version = made.maximum_version = getattr(ssl.TLSVersion, f"TLSv{version.replace('.', '_')}")
    if papers is not None:
        made.load_cert_chain(papers.certificate, papers.key)
    return made


def by_sdk(port: int, world: World, version: str, papers: Papers | None) -> bool:
    with httpx.Client(verify=context(world, version, papers), timeout=20) as transport:
        client = openai.OpenAI(
            base_url=f"https://localhost:{port}/v1", api_key="none", max_retries=0, http_client=transport
        )
        try:
            return client.models.list().data[0].id == "tiny"
        except openai.APIConnectionError:
            return False


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_who_is_answered(asking: tuple[int, Frontend], world: World, version: str, kind: str) -> None:
    wanted, frontend = asking
    papers = world.clients.get(kind)
    answers = [ask(frontend.port, world, version, papers) for ask in (by_openssl, by_curl, by_sdk)]
    assert answers == [kind in ANSWERED[wanted]] * 3


def test_nothing_but_http_1_1_is_agreed_on_and_old_versions_are_refused(
    asking: tuple[int, Frontend], world: World
) -> None:
    _, frontend = asking
    good = world.clients[GOOD]
    for protocols, agreed in ((["h2", "http/1.1"], "http/1.1"), (["h2"], None)):
        made = context(world, "1.3", good)
        made.set_alpn_protocols(protocols)
        if agreed is None:
            with pytest.raises(ssl.SSLError):
                ssl_connect(frontend.port, made)
        else:
            assert ssl_connect(frontend.port, made) == agreed
    made = context(world, "1.2", good)
    made.set_ciphers("DEFAULT@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        made.minimum_version = ssl.TLSVersion.TLSv1
        made.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        ssl_connect(frontend.port, made)


def ssl_connect(port: int, made: ssl.SSLContext) -> str | None:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as plain,
        made.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        return connection.selected_alpn_protocol()


@pytest.fixture(scope="module")
def served(world: World, tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A whole server over TLS. Its certificate files are copies that tests may change; certificates have roles."""
    folder = tmp_path_factory.mktemp("live")
    for source, name in ((world.server.certificate, "cert.pem"), (world.server.key, "key.pem")):
        shutil.copy(source, folder / name)
    keys = folder / "keys"
    keys.write_text("inference san:URI:spiffe://test/*\nadmin an-admin-key\n")
    flags = ["--served-model-name", "tiny", "--kv-cache-memory-bytes", "16M", "--api-key-file", str(keys)]
    flags += ["--ssl-certfile", str(folder / "cert.pem"), "--ssl-keyfile", str(folder / "key.pem")]
    flags += [
        "--ssl-ca-certs",
        str(world.authority.root),
        "--ssl-cert-reqs",
        "1",
        "--ssl-crl",
        str(world.authority.crl),
    ]
    with running(tiny, *flags, env={"SSL_CERT_FILE": str(world.authority.root)}, new_session=True) as server:
        yield server, folder


def test_roles_come_from_the_certificate(served: tuple[Server, Path], world: World) -> None:
    server, _ = served
    assert server.url.startswith("https://")
    for papers, statuses in ((world.clients[GOOD], [200, 200, 403]), (None, [200, 401, 401])):
        with httpx.Client(verify=context(world, "1.3", papers), base_url=server.url, timeout=20) as client:
            got = [client.get(path).status_code for path in ("/health", "/v1/models", "/metrics")]
            assert got == statuses
            assert (
                client.post("/reset_prefix_cache", headers={"authorization": "Bearer an-admin-key"}).status_code == 200
            )


def test_the_clients_of_the_terminal_speak_tls(served: tuple[Server, Path], world: World) -> None:
    server, folder = served
    (folder / "keys").write_text("inference san:URI:spiffe://test/*\nadmin an-admin-key\ninference chat-key-1\n")
    wait_for(lambda: "keys read again" in server.text(), 20, "the new key counts")
    environment = os.environ | {"SSL_CERT_FILE": str(world.authority.root), "OPENAI_API_KEY": "chat-key-1"}
    url = server.url.replace("127.0.0.1", "localhost")
    load = ["--num-prompts", "2", "--random-input-len", "4", "--random-output-len", "2", "--disable-tqdm"]
    header = ["--header", "Authorization=Bearer chat-key-1"]
    for words, code in (
        (["complete", "--url", url, "--quick", "a b", "--max-tokens", "2"], 0),
        (["bench", "serve", "--base-url", url, *load, *header], 0),
    ):
        command = [sys.executable, "-m", "octavo", *words]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
        assert done.returncode == code, done.stdout + done.stderr


def test_certificates_are_swapped_under_load_and_no_request_fails(served: tuple[Server, Path], world: World) -> None:
    server, folder = served
    others = [world.authority.issue(f"server-{index}", "DNS:localhost,IP:127.0.0.1") for index in (1, 2)]
    seen: set[bytes] = set()
    failures: list[str] = []
    done = threading.Event()
    papers = world.clients[GOOD]

    def load() -> None:
        made = context(world, "1.3", papers)
        while not done.is_set():
            try:
                with httpx.Client(verify=made, base_url=server.url, timeout=30) as client:
                    body = {"model": "tiny", "prompt": "a b c", "max_tokens": 4, "temperature": 0}
                    with client.stream("POST", "/v1/completions", json=body) as answer:
                        connection = answer.extensions["network_stream"].get_extra_info("ssl_object")
                        shown = connection.getpeercert(True)
                        text = answer.read()
                    seen.add(shown)
                    if answer.status_code != 200:
                        failures.append(str(text))
            except httpx.HTTPError as error:
                failures.append(repr(error))

    threads = [threading.Thread(target=load) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        wait_for(lambda: bool(seen), 30, "the first certificate")
        for turn in range(20):
            enough = server.text().count("TLS certificates read again") + 1
            new = others[turn % 2]
            shutil.copy(new.key, folder / "key.pem")
            shutil.copy(new.certificate, folder / "cert.pem")
            if turn % 2:
                server.process.send_signal(signal.SIGHUP)
            server.logged("TLS certificates read again", enough)
    finally:
        done.set()
        for thread in threads:
            thread.join(60)
    assert failures == []
    wanted = {ssl.PEM_cert_to_DER_cert(one.certificate.read_text()) for one in (world.server, *others)}
    assert seen == wanted


def test_files_that_do_not_fit_leave_the_old_ones_in_force(served: tuple[Server, Path], world: World) -> None:
    server, folder = served
    (folder / "cert.pem").write_text("nonsense")
    wait_for(lambda: "the TLS certificates of before stay" in server.text(), 20, "the log tells of the file")
    assert re.search(r"--ssl-certfile \S+cert.pem: it holds no certificate; the TLS cert", server.text())
    with httpx.Client(verify=context(world, "1.3", world.clients[GOOD]), base_url=server.url, timeout=20) as client:
        assert client.get("/health").status_code == 200
