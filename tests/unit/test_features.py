"""What the distributions share is compiled once: a crate has the same features in each, and in the tests' build."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DISTRIBUTIONS = ("octavo-python", "octavo-server", "octavo-renderer")
#: With this feature a distribution is built from the same dependencies as the workspace's tests; .ci/run names it.
TESTS = "octavo-unify/tests"


@functools.cache
def _features(*arguments: str) -> dict[str, frozenset[str]]:
    """Return the feature sets with which each foreign crate is compiled: one of the target's, one of the host's."""
    cargo = shutil.which("cargo")
    if cargo is None:
        pytest.skip("cargo is not on this machine")
    command = [cargo, "tree", "--locked", "--offline", *arguments, "--prefix", "none"]
    listed = subprocess.run([*command, "-f", "{p}|{f}"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found: dict[str, set[str]] = defaultdict(set)
    for line in listed.splitlines():
        crate, _, features = line.removesuffix(" (*)").partition("|")
        if "(/" not in crate:  # not one of our own
            found[crate.removesuffix(" (proc-macro)")].add(features)
    assert len(found) > 80
    return {crate: frozenset(sets) for crate, sets in found.items()}


def _differing(builds: dict[str, dict[str, frozenset[str]]]) -> dict[str, dict[str, list[str]]]:
    """Return the crates that two builds compile with different features, and those by build."""
    return {
        crate: {name: sorted(found[crate]) for name, found in builds.items() if crate in found}
        for crate in sorted({crate for found in builds.values() for crate in found})
        if len({found[crate] for found in builds.values() if crate in found}) > 1
    }


def test_no_crate_is_compiled_twice_for_its_features() -> None:
    builds = {name: _features("-p", name, "-e", "normal,build") for name in DISTRIBUTIONS}
    assert not _differing(builds), "name these features in rust_frontend/unify/Cargo.toml"


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_no_crate_is_compiled_anew_for_the_tests(name: str) -> None:
    assert TESTS in (ROOT / ".ci" / "run").read_text()
    tests = _features("--workspace", "-e", "normal,build,dev")
    built = _features("-p", name, "--features", TESTS, "-e", "normal,build")
    differing = _differing({name: built, "tests": {crate: tests[crate] for crate in built}})
    assert not differing, "name these features under `tests` in rust_frontend/unify/Cargo.toml"
