"""What pages of docs/ name is there; docs/architecture.md has a test of its own."""

from __future__ import annotations

import re

from tests.unit.test_structure import ROOT


def test_the_metrics_that_pages_name_are_in_the_list() -> None:
    folder = ROOT / "docs"
    rows = (folder / "observability" / "metrics.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(octavo:\w+)`", rows, re.MULTILINE))
    named = {
        (path.name, name)
        for path in [*folder.glob("*.md"), ROOT / "README.md"]
        for name in re.findall(r"`(octavo:\w+)", path.read_text(encoding="utf-8"))
    }
    endings = r"_(total|bucket|sum|count|created)$"
    assert named
    assert not {(page, name) for page, name in named if not {name, re.sub(endings, "", name)} & listed}
