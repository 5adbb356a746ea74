"""What the distributions share is compiled once: a crate has the same features in each of them."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DISTRIBUTIONS = ("octavo-python", "octavo-server", "octavo-renderer")


def _features(distribution: str) -> dict[str, frozenset[str]]:
    """Return the feature sets with which each foreign crate is compiled: one of the target's, one of the host's."""
    cargo = shutil.which("cargo")
    if cargo is None:
        pytest.skip("cargo is not on this machine")
    command = [cargo, "tree", "--locked", "--offline", "-p", distribution, "-e", "normal,build", "--prefix", "none"]
    listed = subprocess.run([*command, "-f", "{p}|{f}"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found: dict[str, set[str]] = defaultdict(set)
    for line in listed.splitlines():
        crate, _, features = line.removesuffix(" (*)").partition("|")
        if "(/" not in crate:  # not one of our own
            found[crate.removesuffix(" (proc-macro)")].add(features)
    return {crate: frozenset(sets) for crate, sets in found.items()}


def test_no_crate_is_compiled_twice_for_its_features() -> None:
    by_distribution = {name: _features(name) for name in DISTRIBUTIONS}
    assert all(len(found) > 80 for found in by_distribution.values())
    crates = {crate for found in by_distribution.values() for crate in found}
    differing = {
        crate: {name: sorted(found[crate]) for name, found in by_distribution.items() if crate in found}
        for crate in sorted(crates)
        if len({found[crate] for found in by_distribution.values() if crate in found}) > 1
    }
    assert not differing, "name these features in rust_frontend/unify/Cargo.toml"
