"""A reader of Rust source that finds functions and their lengths. Knows strings, characters and comments."""

from __future__ import annotations

import re

__all__ = ["functions"]

_SKIP = re.compile(
    r"""
    //[^\n]*                      # line comment
    | /\*.*?\*/                   # block comment
    | b?r(\#*)"(?:.*?)"\1         # raw string
    | b?"(?:\\.|[^"\\])*"         # string
    | b?'(?:\\(?:.|x..|u\{[^}]*\})|[^'\\])'   # character
    """,
    re.VERBOSE | re.DOTALL,
)
_FUNCTION = re.compile(r"\bfn\s+(\w+)")


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def functions(text: str) -> list[tuple[str, int]]:
    """Return (name, lines) of each function with a body, in the order of their beginnings.

    Lines count from the one with `fn` to the closing brace.
    """
    code = _SKIP.sub(_blank, text)
    found = []
    for match in _FUNCTION.finditer(code):
        end = _body_end(code, match.end())
        if end is not None:
            found.append((match[1], code.count("\n", match.start(), end) + 1))
    return found


def _body_end(code: str, start: int) -> int | None:
    """Return where the body that begins after `start` ends; None for a declaration without a body."""
    depth = 0
    for index in range(start, len(code)):
        char = code[index]
        if char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                return index
        elif char == ";" and depth == 0 and _balanced(code[start:index]):
            return None
    return None


def _balanced(code: str) -> bool:
    return code.count("(") == code.count(")") and code.count("[") == code.count("]")
