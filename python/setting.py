"""How one setting is given, checked and explained: what all records of settings are made of."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = [
    "Setting",
    "choice",
    "count",
    "flag",
    "float_type",
    "or_none",
    "power_of_two",
    "seconds",
    "setting",
    "switched",
]


@dataclass(frozen=True, slots=True)
class Setting:
    """How one field of ServeConfig is given, checked and explained."""

    name: str
    default: Any
    parse: Callable[[str], Any]
    group: str
    help: str
    metavar: str
    many: bool = False  # the flag takes several words
    alias: str = ""  # another name of the flag
    positional: bool = False
    switch: bool = False  # no word: --name is true, --no-name is false

    @property
    def flag(self) -> str:
        """The flag as a user types it."""
        return self.name.upper() if self.positional else flag(self.name)

    @property
    def shown(self) -> str:
        """The default as a user reads it."""
        if self.switch:
            return "on" if self.default else "off"
        if self.default is None:
            return "auto" if self.metavar.endswith("|auto") else "none"
        if self.metavar == "BYTES" and self.default % 2**20 == 0:
            return f"{self.default >> 20}M"
        if isinstance(self.default, float) and self.default.is_integer():
            return str(int(self.default))
        return str(self.default)


def flag(name: str) -> str:
    """Return the flag of a field: `max_num_seqs` is `--max-num-seqs`."""
    return "--" + name.replace("_", "-")


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def _number(text: str) -> int:
    """Parse a count: "4096", "16k" is 16,000, "16K" is 16,384 (vLLM's rule)."""
    if re.fullmatch(r"-[0-9.]+", text):
        raise ValueError("must not be negative")
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kKmMgGtT]?)", text)
    if match is None:
        raise ValueError("must be a count such as 4096, 16k (16,000) or 16K (16,384); k, m, g, t and K, M, G, T")
    return int(float(match[1]) * _UNITS[match[2]])


def count(low: int, high: int | None = None) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = _number(text)
        if value < low:
            raise ValueError(f"must be at least {low}")
        if high is not None and value > high:
            raise ValueError(f"must be at most {high}")
        return value

    return parse


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("must be a number of seconds") from None
    if not 0 <= value < 1e9:
        raise ValueError("must be 0 or more seconds")
    return value


def or_none(word: str, parse: Callable[[str], Any]) -> Callable[[str], Any]:
    def parse_or_none(text: str) -> Any:
        return None if text == word else parse(text)

    return parse_or_none


def choice(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return text

    return parse


def float_type(text: str) -> str:
    if text in ("float16", "half"):
        raise ValueError("is not offered; take bfloat16 (as fast, wider range) or float32")
    return choice("auto", "bfloat16", "float32")({"float": "float32"}.get(text, text))


def power_of_two(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = count(low, high)(text)
        if value & (value - 1):
            raise ValueError("must be a power of two")
        return value

    return parse


def setting(
    default: Any,
    parse: Callable[[str], Any],
    group: str,
    help: str,
    metavar: str = "N",
    *,
    many: bool = False,
    positional: bool = False,
    switch: bool = False,
    alias: str = "",
) -> Any:
    info = {"parse": parse, "group": group, "help": help, "metavar": metavar}
    kinds = {"many": many, "positional": positional, "switch": switch, "alias": alias}
    return dataclasses.field(default=default, metadata=info | kinds)


def _boolean(text: str) -> bool:
    words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    if text.lower() not in words:
        raise ValueError("must be true or false")
    return words[text.lower()]


def switched(default: bool, group: str, help: str) -> Any:
    """Describe a flag without a word: --name sets it, --no-name clears it."""
    return setting(default, _boolean, group, help, "", switch=True)
