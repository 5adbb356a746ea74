"""Flags: a parser that teaches, and the settings' flags made from their one definition."""

from __future__ import annotations

import argparse
import difflib
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

from octavo.cli.retired import RETIRED
from octavo.config import Setting, settings

__all__ = ["RAW", "Parser", "add_settings", "dashed"]


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Leaves examples as they are, and no flag is broken at its dashes."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


#: For commands with examples below their flags.
RAW: dict[str, Any] = {"formatter_class": _Formatter, "allow_abbrev": False}


class Parser(argparse.ArgumentParser):
    """argparse, but an unknown flag names the nearest one and errors end without the usage lines."""

    def error(self, message: str) -> NoReturn:
        """Print one line and how to get help, and leave with 2."""
        print(f"{self.prog}: {message}\nTry `{self.prog} --help`.", file=sys.stderr)
        raise SystemExit(2)

    def suggest(self, words: Sequence[str]) -> NoReturn:
        """Leave with what replaces the first unknown flag, or with the nearest flag that there is."""
        word = words[0].split("=")[0]
        if word in RETIRED:
            self.error(f"{word} is not a flag of octavo: {RETIRED[word]}")
        known = [option for action in self._actions for option in action.option_strings]
        near = [name for name in known if name.startswith(word)] or difflib.get_close_matches(word, known, n=1)
        self.error(f"unknown argument {word}" + (f"; did you mean {near[0]}?" if near else ""))


def dashed(words: Sequence[str]) -> list[str]:
    """Return the words with underscores in flags as dashes, as vLLM takes both."""
    changed = []
    for word in words:
        name, equals, value = word.partition("=")
        changed.append(name.replace("_", "-") + equals + value if name.startswith("--") else word)
    return changed


def add_settings(target: argparse.ArgumentParser, *, model_required: bool = True, without: Sequence[str] = ()) -> None:
    """Add the flags of all settings but some, in their groups; MODEL may be left out where it is not required."""
    groups: dict[str, argparse._ArgumentGroup] = {}
    for setting in settings():
        if setting.name in without:
            continue
        if setting.group not in groups:
            groups[setting.group] = target.add_argument_group(setting.group.lower())
        _add(groups[setting.group], setting, model_required)


def _add(target: argparse._ArgumentGroup, setting: Setting, model_required: bool) -> None:
    text = setting.help.replace("%", "%%")
    if setting.positional:
        nargs = None if model_required else "?"
        target.add_argument(
            setting.name, metavar=setting.name.upper(), help=text, nargs=nargs, default=argparse.SUPPRESS
        )
        return
    if setting.switch and setting.default:
        text += f"; --no-{setting.flag[2:]} turns it off"
    if setting.default not in ((), ""):
        text += f" (default: {setting.shown})"
    if setting.switch:
        for name, value in ((setting.flag, "true"), (f"--no-{setting.flag[2:]}", "false")):
            shown = text if value == "true" else argparse.SUPPRESS
            target.add_argument(
                name, dest=setting.name, help=shown, action="store_const", const=value, default=argparse.SUPPRESS
            )
        return
    target.add_argument(
        *([setting.flag, setting.alias] if setting.alias else [setting.flag]),
        dest=setting.name,
        metavar=setting.metavar,
        help=text,
        default=argparse.SUPPRESS,
        nargs="+" if setting.many else None,
        action="extend" if setting.many else "store",
    )
