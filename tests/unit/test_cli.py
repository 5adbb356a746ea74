"""The command line as a user meets it."""

from __future__ import annotations

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
    given = {name: text for name, text in vars(arguments).items() if name not in ("command", "parser")}
    assert build(given).enable_prefix_caching is value
