"""A certificate authority for tests, made with the openssl program."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Authority", "Papers"]

_CA_CONFIG = """
[ca]
default_ca = own
[own]
database = {folder}/index
serial = {folder}/serial
crlnumber = {folder}/crlnumber
new_certs_dir = {folder}
default_md = sha256
policy = any
copy_extensions = copy
default_crl_days = 30
unique_subject = no
[any]
commonName = supplied
[end]
basicConstraints = CA:FALSE
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


def _openssl(*words: str | Path) -> str:
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass(frozen=True)
class Papers:
    """A certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates and revokes them. `folder` must be empty."""

    def __init__(self, folder: Path, name: str = "test root") -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self.root = folder / "root.pem"
        self._key = folder / "root.key"
        self.crl = folder / "crl.pem"
        self._config = folder / "ca.cnf"
        self._config.write_text(_CA_CONFIG.format(folder=folder))
        (folder / "index").write_text("")
        (folder / "serial").write_text("1000")
        (folder / "crlnumber").write_text("01")
        self._new_key(self._key)
        words = ["-key", self._key, "-out", self.root, "-subj", f"/CN={name}", "-days", "30"]
        usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        _openssl("req", "-x509", *words, *usage)
        self._list_revoked()

    def _new_key(self, path: Path) -> None:
        _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path)

    def issue(self, name: str, san: str, *, expired: bool = False) -> Papers:
        """Sign a certificate with such subject alternative names, as openssl writes them."""
        papers = Papers(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        request = self._folder / f"{name}.csr"
        self._new_key(papers.key)
        words = ["-key", papers.key, "-out", request, "-subj", f"/CN={name}", "-addext", f"subjectAltName={san}"]
        _openssl("req", "-new", *words)
        span = ("20200101000000Z", "20200201000000Z") if expired else ("20200101000000Z", "20460101000000Z")
        dates = ["-startdate", span[0], "-enddate", span[1]]
        signing = ["-keyfile", self._key, "-cert", self.root, "-in", request, "-out", papers.certificate]
        _openssl("ca", "-batch", "-notext", "-config", self._config, "-extensions", "end", *signing, *dates)
        return papers

    def revoke(self, papers: Papers) -> None:
        """Take a certificate back, and write the list anew."""
        signing = ["-keyfile", self._key, "-cert", self.root]
        _openssl("ca", "-config", self._config, *signing, "-revoke", papers.certificate)
        self._list_revoked()

    def _list_revoked(self) -> None:
        signing = ["-keyfile", self._key, "-cert", self.root]
        _openssl("ca", "-config", self._config, *signing, "-gencrl", "-out", self.crl)
