"""Read GGUF files, whole or in parts: metadata, and where each tensor lies. Files are mapped, not copied.

Format: github.com/ggml-org/ggml, docs/gguf.md (versions 2 and 3, little-endian).
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from octavo.errors import ModelError
from octavo.modelfiles.gguf_parts import parts_of

__all__ = ["GGML_TYPES", "GgufFile", "GgufTensor", "read_gguf"]

#: Type number -> (name, elements in a block, bytes of a block), for the types that octavo can read.
GGML_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 30: ("BF16", 1, 2),
    2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136), 29: ("IQ1_M", 256, 56), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}  # fmt: skip

#: Names of the other types, for messages.
_OTHER_TYPES = {9: "Q8_1", 15: "Q8_K", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64"}

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING = 8
_ARRAY = 9
_ALIGNMENT = 32


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor of a file. The shape is in torch's order: rows first."""

    name: str
    shape: tuple[int, ...]
    type: str  # "F32", "Q4_1", ...
    data: np.ndarray[Any, np.dtype[np.uint8]]  # [rows, bytes of a row] uint8, a view of the mapped file


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A parsed file. Arrays in the metadata are lists."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]


class _Cursor:
    """A position in the mapped file."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0

    def scalar(self, code: str) -> Any:
        value = struct.unpack_from("<" + code, self.data, self.at)[0]
        self.at += struct.calcsize(code)
        return value

    def string(self) -> str:
        size = struct.unpack_from("<Q", self.data, self.at)[0]
        start = self.at + 8
        if size > len(self.data) - start:
            raise struct.error("string beyond the end")
        self.at = start + size
        return self.data[start : self.at].decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self.array()
        return self.scalar(_SCALARS[kind])

    def array(self) -> list[Any]:
        kind, count = self.scalar("I"), self.scalar("Q")
        if kind in (_STRING, _ARRAY):
            return [self.value(kind) for _ in range(count)]
        code = f"<{count}{_SCALARS[kind]}"
        values = struct.unpack_from(code, self.data, self.at)
        self.at += struct.calcsize(code)
        return list(values)


def read_gguf(path: Path) -> GgufFile:
    """Parse the file's header and map its tensors; those of all its parts where it is one of several.

    Raises ModelError if it is not GGUF, is damaged or truncated, holds a quantisation that octavo cannot read, or lacks
    a part.
    """
    first, *others = (_read(part) for part in parts_of(path))
    tensors = dict(first.tensors)
    for other in others:
        tensors |= other.tensors
    told = first.metadata.get("split.tensors.count", len(tensors))
    if others and told != len(tensors):
        raise ModelError(
            f"{first.path} and its other parts hold {len(tensors)} tensors, and should hold {told}: they belong to "
            "different files. Download them again."
        )
    return GgufFile(first.path, first.metadata, tensors)


def _read(path: Path) -> GgufFile:
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}. Download it again.") from error
    if mapped[:4] != b"GGUF":
        raise ModelError(f"{path} is not a GGUF file: it begins with {mapped[:4]!r}. Download it again.")
    try:
        return _parse(path, mapped)
    except (struct.error, KeyError, MemoryError, OverflowError) as error:
        raise ModelError(f"{path} is damaged: its header ends early ({error}). Download it again.") from error


def _parse(path: Path, mapped: mmap.mmap) -> GgufFile:
    cursor = _Cursor(mapped)
    cursor.at = 4
    version = cursor.scalar("I")
    if version not in (2, 3):
        raise ModelError(f"{path} is GGUF version {version}; versions 2 and 3 are supported. Convert it again.")
    num_tensors, num_values = cursor.scalar("Q"), cursor.scalar("Q")
    metadata: dict[str, Any] = {}
    for _ in range(num_values):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.scalar("I"))
    infos = []
    for _ in range(num_tensors):
        name = cursor.string()
        dims = tuple(cursor.scalar("Q") for _ in range(cursor.scalar("I")))
        infos.append((name, dims[::-1], cursor.scalar("I"), cursor.scalar("Q")))
    alignment = int(metadata.get("general.alignment", _ALIGNMENT))
    start = -(-cursor.at // alignment) * alignment
    _check_types(path, infos)
    whole = np.frombuffer(mapped, dtype=np.uint8)
    tensors = {info[0]: _view(path, whole, start, *info) for info in infos}
    return GgufFile(path, metadata, tensors)


def _check_types(path: Path, infos: list[tuple[str, tuple[int, ...], int, int]]) -> None:
    bad = sorted({kind for _, _, kind, _ in infos if kind not in GGML_TYPES})
    if not bad:
        return
    names = ", ".join(_OTHER_TYPES.get(kind, f"type {kind}") for kind in bad)
    known = ", ".join(name for name, _, _ in GGML_TYPES.values())
    example = next(name for name, _, kind, _ in infos if kind in bad)
    raise ModelError(
        f"{path} holds the GGUF quantisation {names} (tensor {example!r}), which is not supported; "
        f"supported: {known}. Use a file of one of these, or convert this one."
    )


def _view(
    path: Path, whole: np.ndarray[Any, Any], start: int, name: str, shape: tuple[int, ...], kind: int, offset: int
) -> GgufTensor:
    type_name, block, size = GGML_TYPES[kind]
    columns = shape[-1] if shape else 1
    if columns % block:
        raise ModelError(f"{path}: the rows of {name!r} have {columns} elements, no multiple of {block} ({type_name}).")
    rows = 1
    for dim in shape[:-1]:
        rows *= dim
    row_bytes = columns // block * size
    begin, end = start + offset, start + offset + rows * row_bytes
    if end > whole.size:
        raise ModelError(
            f"{path} is truncated: {name!r} ends at byte {end}, the file at {whole.size}. Download it again."
        )
    return GgufTensor(name, shape, type_name, whole[begin:end].reshape(rows, row_bytes))
