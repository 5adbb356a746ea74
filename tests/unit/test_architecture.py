"""docs/architecture.md names what exists: every package, crate, file, flag and name of code on the page."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
#: `code` on the page, outside of fenced blocks.
NAMES = sorted(set(re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", PAGE, flags=re.DOTALL | re.MULTILINE))))
FILES = [name for name in NAMES if re.fullmatch(r"[\w/]+\.(py|rs)|[\w/]+/", name)]
#: Flags and names of code, with what they belong to: `Body::parse`, `--max-restarts`, `num_tokens`.
WORDS = [name for name in NAMES if re.fullmatch(r"--[a-z-]+|[A-Z]\w+((::|\.)\w+)?|[a-z]+(_[a-z]+)+", name)]


def _tracked(*patterns: str) -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.fixture(scope="module")
def code() -> str:
    files = [name for name in _tracked("python/*.py", "rust_frontend/*.rs") if (ROOT / name).is_file()]
    return "\n".join((ROOT / name).read_text(encoding="utf-8") for name in files)


def _listed(head: str) -> set[str]:
    """Return the names in the first column of the table whose first column is called so."""
    table = PAGE.partition(f"| {head} |")[2].partition("\n\n")[0]
    return {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_every_package_and_crate_is_told_of() -> None:
    packages = {name.split("/")[1] for name in _tracked("python/*/__init__.py")}
    crates = {name.split("/")[1] for name in _tracked("rust_frontend/*/Cargo.toml")}
    assert len(packages) > 10 and len(crates) > 10
    assert _listed("Python package") == packages
    assert _listed("crate") == crates


def test_files_and_folders_exist() -> None:
    assert len(FILES) > 30
    paths = [f"/{name}" for name in _tracked() if (ROOT / name).is_file()]
    gone = [
        name
        for name in FILES
        if not any(f"/{name}" in path if name.endswith("/") else path.endswith(f"/{name}") for path in paths)
    ]
    assert not gone, "docs/architecture.md names files that are gone"


def test_flags_and_names_of_code_exist(code: str) -> None:
    assert len(WORDS) > 20
    known = set(re.findall(r"\w+", code))
    parts = {word: re.split(r"::|\.", word.removeprefix("--").replace("-", "_")) for word in WORDS}
    gone = [word for word in WORDS if not known.issuperset(parts[word])]
    assert not gone, "docs/architecture.md names what the code does not have"
