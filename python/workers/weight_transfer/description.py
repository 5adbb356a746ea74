"""What a trainer says of the tensors that it sends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from octavo.errors import ControlError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TensorDescription", "described", "whole", "word"]

#: No tensor is larger, in bytes.
_LARGEST = 1 << 50
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class TensorDescription:
    """One tensor, whole, with the name that it has in a checkpoint."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Its size."""
        return math.prod(self.shape) * self.dtype.itemsize


def described(info: Mapping[str, Any]) -> list[TensorDescription]:
    """Read `names`, `dtype_names` and `shapes`, three lists of one length. Raises ControlError that names the field."""
    names, dtypes, shapes = (_list(info, field) for field in ("names", "dtype_names", "shapes"))
    for field, values in (("dtype_names", dtypes), ("shapes", shapes)):
        if len(values) != len(names):
            raise _wrong(field, f"has {len(values)} entries, names {len(names)}")
    found = []
    for index, (name, dtype, shape) in enumerate(zip(names, dtypes, shapes, strict=True)):
        if not isinstance(name, str):
            raise _wrong(f"names.{index}", f"must be a string; got {name!r}")
        known = _DTYPES.get(str(dtype).removeprefix("torch."))
        if known is None:
            raise _wrong(f"dtype_names.{index}", f"must be one of {', '.join(_DTYPES)}; got {dtype!r}")
        if not isinstance(shape, list) or not all(_is_count(size) and size < _LARGEST for size in shape):
            raise _wrong(f"shapes.{index}", f"must be a list of sizes; got {shape!r}")
        found.append(TensorDescription(name, known, tuple(shape)))
        if found[-1].nbytes >= _LARGEST:
            raise _wrong(f"shapes.{index}", f"is larger than any memory; got {shape!r}")
    if not found:
        raise _wrong("names", "is empty; name at least one tensor")
    return found


def word(info: Mapping[str, Any], outer: str, field: str) -> str:
    """Read a string. Raises ControlError."""
    value = info.get(field)
    if not isinstance(value, str) or not value:
        raise ControlError(f"'{outer}.{field}' must be a string; got {value!r}", "invalid", f"{outer}.{field}")
    return value


def whole(info: Mapping[str, Any], outer: str, field: str, least: int, most: int, default: int | None = None) -> int:
    """Read an integer within bounds. Raises ControlError."""
    value = info.get(field, default)
    if not _is_count(value) or not least <= value <= most:
        message = f"'{outer}.{field}' must be an integer from {least} to {most}; got {value!r}"
        raise ControlError(message, "invalid", f"{outer}.{field}")
    return int(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _list(info: Mapping[str, Any], field: str) -> list[Any]:
    value = info.get(field)
    if not isinstance(value, list):
        raise _wrong(field, f"must be a list; got {value!r}")
    return value


def _wrong(field: str, what: str) -> ControlError:
    return ControlError(f"'update_info.{field}' {what}", "invalid", f"update_info.{field}")
