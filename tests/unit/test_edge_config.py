"""Flags of the edge that need or exclude each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.config import build
from octavo.edge_config import EdgeConfig
from octavo.errors import ConfigError


@pytest.fixture
def pem(tmp_path: Path) -> str:
    path = tmp_path / "some.pem"
    path.write_text("")
    return str(path)


def test_defaults_are_those_of_the_frontend() -> None:
    assert build({"model": "m"}).edge() == EdgeConfig()


def test_a_key_may_stand_in_the_certificate_file(pem: str) -> None:
    tls = build({"model": "m", "ssl_certfile": pem}).edge().tls
    assert tls is not None
    assert (tls.certfile, tls.keyfile, tls.cert_reqs) == (pem, pem, 0)


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("ssl_keyfile", "--ssl-certfile"),
        ("ssl_ca_certs", "--ssl-certfile"),
        ("ssl_cert_reqs", "--ssl-ca-certs"),
        ("ssl_crl", "--ssl-ca-certs"),
    ],
)
def test_a_flag_without_the_one_it_needs_is_refused(pem: str, name: str, needed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build({"model": "m", name: "2" if name == "ssl_cert_reqs" else pem})
    assert caught.value.param == name
    assert needed in caught.value.message


@pytest.mark.parametrize(("name", "text"), [("ssl_certfile", "/nowhere.pem"), ("ssl_cert_reqs", "3")])
def test_a_wrong_value_names_the_flag(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} {text}"):
        build({"model": "m", name: text})
