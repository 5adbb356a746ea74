"""From a name to a path: paths, the demo model, the Hub with and without a connection."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.errors import ModelError
from octavo.modelfiles import locate, smollm2
from octavo.modelfiles.hub import is_hub_name

ROOT = Path(__file__).resolve().parents[3]
COMMIT = "0123456789abcdef0123456789abcdef01234567"

#: Prints where a model is, or why it is nowhere. The Hub's client reads its variables when it is imported.
_PROGRAM = """
import sys
from octavo.errors import ModelError
from octavo.modelfiles import locate
try:
    print(locate(sys.argv[1], sys.argv[2] or None))
except ModelError as error:
    print("refused:", error.message)
"""


def ask(home: Path, name: str, revision: str = "", **variables: str) -> str:
    environment = os.environ | {"HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"} | variables
    command = [sys.executable, "-c", _PROGRAM, name, revision]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=True
    ).stdout


def cached(home: Path, name: str = "org/tiny", branch: str = "main") -> Path:
    folder = home / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (snapshot / "tiny-Q4_K_M.gguf").write_bytes(b"GGUF")
    (folder / "refs").mkdir()
    (folder / "refs" / branch).write_text(COMMIT)
    return snapshot


def test_a_path_is_itself(tmp_path: Path) -> None:
    assert locate(str(tmp_path)) == tmp_path
    with pytest.raises(
        ModelError, match=r"'./nothing' does not exist. Give a folder .* a name on the Hugging Face Hub"
    ):
        locate("./nothing")


def test_the_demo_model_is_fetched_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(smollm2, "fetch", lambda say: tmp_path / "demo.gguf")
    assert locate("smollm2") == tmp_path / "demo.gguf"
    (tmp_path / "smollm2").mkdir()
    assert locate("smollm2") == Path("smollm2")  # a folder of this name wins


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("org/name", True),
        ("org/name:Q4_K_M", True),
        ("./name", False),
        ("/a/b", False),
        ("name", False),
        ("a/b/c", False),
    ],
)
def test_names_on_the_hub(name: str, is_one: bool) -> None:
    assert is_hub_name(name) == is_one


@pytest.mark.parametrize("branch", ["main", "v2"])
def test_what_was_fetched_once_needs_no_hub(tmp_path: Path, branch: str) -> None:
    snapshot = cached(tmp_path, branch=branch)
    revision = "" if branch == "main" else branch
    assert ask(tmp_path, "org/tiny", revision, HF_HUB_OFFLINE="1") == f"{snapshot}\n"
    assert ask(tmp_path, "org/tiny", COMMIT, HF_HUB_OFFLINE="1") == f"{snapshot}\n"


def test_one_file_of_a_repository(tmp_path: Path) -> None:
    snapshot = cached(tmp_path)
    (snapshot / "config.json").unlink()
    assert "name one by a part of its name: org/tiny:Q4_K_M" in ask(tmp_path, "org/tiny", HF_HUB_OFFLINE="1")
    assert ask(tmp_path, "org/tiny:Q4_K_M", HF_HUB_OFFLINE="1") == f"{snapshot / 'tiny-Q4_K_M.gguf'}\n"
    assert "'Q8_0' must name one .gguf file of the repository; found: none" in ask(
        tmp_path, "org/tiny:Q8_0", HF_HUB_OFFLINE="1"
    )


@pytest.mark.parametrize("variables", [{"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}])
def test_what_is_neither_cached_nor_reachable(tmp_path: Path, variables: dict[str, str]) -> None:
    said = ask(tmp_path, "org/tiny", "v3", **variables)
    assert (
        "refused: revision 'v3' of org/tiny is not on this machine, and the Hugging Face Hub cannot be reached" in said
    )
