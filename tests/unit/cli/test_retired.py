"""Flags and variables of vLLM that are answered by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.cli import main
from octavo.cli.retired import RETIRED, VARIABLES, notes
from octavo.config import settings

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("flag", sorted(RETIRED))
def test_a_flag_of_vllm_is_answered_with_what_to_do(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "m", flag, "1"])
    assert ended.value.code == 2
    assert f"{flag} is not a flag of octavo: {RETIRED[flag]}" in capsys.readouterr().err


def test_none_of_them_is_a_flag_of_ours() -> None:
    assert not set(RETIRED) & {setting.flag for setting in settings()}


def test_the_page_for_those_who_come_from_vllm_has_them_all() -> None:
    page = (ROOT / "docs" / "from-vllm.md").read_text(encoding="utf-8")
    assert [name for name in (*RETIRED, *VARIABLES) if f"`{name}`" not in page] == []


def test_set_variables_are_answered_and_ours_are_left_alone() -> None:
    lines = notes({"VLLM_USE_V1": "0", "VLLM_SOMETHING": "1", "OCTAVO_PORT": "1", "PATH": ""})
    assert lines == [
        "VLLM_SOMETHING has no effect: octavo reads no VLLM_ variables",
        "VLLM_USE_V1 has no effect: there is one engine",
    ]
