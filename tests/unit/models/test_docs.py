from __future__ import annotations

from pathlib import Path

from octavo.models.registry import ARCHITECTURES
from tests.families import FAMILIES
from tests.tools.models_table import page

DOCS = Path(__file__).resolve().parents[3] / "docs" / "models.md"


def test_docs_page_is_current() -> None:
    assert page() == DOCS.read_text(encoding="utf-8"), "run python -m tests.tools.models_table"


def test_every_architecture_is_checked_against_transformers() -> None:
    """But for models of images and text, whose text half is another entry."""
    checked = {family.model for family in FAMILIES.values()}
    assert checked == {name for name in ARCHITECTURES if not name.endswith("ConditionalGeneration")}
