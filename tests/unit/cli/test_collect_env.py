"""What a report says."""

from __future__ import annotations

import json

import pytest

from octavo import __version__
from octavo.cli import main


def test_a_report_has_versions_and_the_machine_and_no_secrets(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("OCTAVO_PORT", "8001")
    assert main(["collect-env", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["octavo"]["octavo"] == __version__
    assert facts["octavo"]["torch"] != "not installed"
    assert facts["machine"]["cores"].isdigit()
    assert "cuda available" in facts["devices"]
    assert facts["environment"]["HF_TOKEN"] == "(set)"
    assert facts["environment"]["OCTAVO_PORT"] == "8001"


def test_a_report_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collect-env"]) == 0
    shown = capsys.readouterr().out
    assert "machine:\n" in shown
    assert "hf_secret" not in shown
