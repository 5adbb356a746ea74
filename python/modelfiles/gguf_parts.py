"""GGUF files in parts, as llama.cpp's gguf-split makes them: m-00001-of-00003.gguf, m-00002-of-00003.gguf, …"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from octavo.errors import ModelError

__all__ = ["parts_of", "without_parts"]

_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")


def parts_of(path: Path) -> tuple[Path, ...]:
    """Return all parts of the file that `path` is one part of, the first first; `path` alone where it is whole.

    Raises ModelError that names the parts that are not there.
    """
    found = _PART.fullmatch(path.name)
    if found is None:
        return (path,)
    stem, total = found[1], int(found[3])
    parts = tuple(path.with_name(f"{stem}-{number:05}-of-{total:05}.gguf") for number in range(1, total + 1))
    absent = [part.name for part in parts if not part.is_file()]
    if absent or not 1 <= int(found[2]) <= total:
        some = ", ".join(absent[:3]) + (f" and {len(absent) - 3} more" if len(absent) > 3 else "")
        raise ModelError(
            f"{path.name} is one of {total} parts of a GGUF file, and {path.parent} lacks {some or 'part 1'}. Download "
            "all parts into one folder."
        )
    return parts


def without_parts(files: Iterable[Path]) -> list[Path]:
    """Return the files in order, but of the parts of one only the first that is there."""
    kept: dict[str, Path] = {}
    for file in sorted(files):
        found = _PART.fullmatch(file.name)
        kept.setdefault(str(file.with_name(found[1] + found[3])) if found else str(file), file)
    return list(kept.values())
