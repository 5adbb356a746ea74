"""The command line as a user meets it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from octavo import __version__
from octavo.cli import main, parser
from octavo.config import build, settings


def test_help_shows_every_flag_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for setting in settings():
        assert setting.flag in shown
    assert "(default: 8000)" in shown
    assert "examples:" in shown


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"octavo {__version__}\n"


def test_an_unknown_flag_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "m", "--max-num-sequences", "4"])
    assert ended.value.code == 2
    assert "did you mean --max-num-seqs?" in capsys.readouterr().err


def test_a_model_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve"])
    assert ended.value.code == 2
    assert "MODEL" in capsys.readouterr().err


def test_a_wrong_value_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "m", "--port", "none"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("octavo: --port none: ")
    assert shown.count("\n") == 1


def test_flags_are_not_abbreviated() -> None:
    arguments, unknown = parser().parse_known_args(["serve", "m", "--max-num", "4"])
    assert unknown
    assert not hasattr(arguments, "max_num_seqs")


@pytest.mark.parametrize(
    ("words", "value"), [([], True), (["--enable-prefix-caching"], True), (["--no-enable-prefix-caching"], False)]
)
def test_a_switch_takes_no_word(words: list[str], value: bool) -> None:
    arguments = parser().parse_args(["serve", "m", *words])
    given = vars(arguments)
    assert (
        build({name: text for name, text in given.items() if name == "enable_prefix_caching"}).enable_prefix_caching
        is value
    )


def test_underscores_in_flags_mean_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "m", "--max_num_seqs", "none"]) == 2
    assert capsys.readouterr().err.startswith("octavo: --max-num-seqs none: ")


@pytest.mark.parametrize("command", ["serve", "chat", "complete", "run-batch", "models", "collect-env"])
def test_every_command_teaches(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert f"usage: octavo {command}" in shown
    assert command == "collect-env" or "examples:" in shown


def test_help_does_not_pay_for_torch() -> None:
    code = "import sys; from octavo.cli import parser; parser(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


@pytest.mark.parametrize(("word", "hint"), [("sevre", "did you mean serve?"), ("xyz", "there are serve, chat")])
def test_an_unknown_command_is_answered_with_those_there_are(
    word: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([word])
    assert ended.value.code == 2
    assert hint in capsys.readouterr().err
