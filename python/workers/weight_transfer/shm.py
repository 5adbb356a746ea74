"""Weights through shared memory: the trainer, on this host, writes a segment, and all ranks read it."""

from __future__ import annotations

import math
import mmap
import os
import re
import stat
from typing import TYPE_CHECKING, Any

import torch

from octavo.errors import ControlError
from octavo.workers.weight_transfer.description import word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor

    from octavo.workers.weight_transfer.backend import Place
    from octavo.workers.weight_transfer.description import TensorDescription

__all__ = ["SharedMemoryBackend"]

_FOLDER = "/dev/shm"
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe of that name is not waited for
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}")


class SharedMemoryBackend:
    """`update_info`: `segment`, the name of a POSIX shared memory object, and `offsets`, in bytes, of the tensors.

    Without `offsets` the tensors lie one behind the other. The trainer may unlink the segment when it has the answer.
    """

    def __init__(self, info: Mapping[str, Any], place: Place) -> None:
        """There is nothing to connect."""

    def receive(self, info: Mapping[str, Any], tensors: Sequence[TensorDescription]) -> Iterator[Tensor]:
        """Map the segment; see WeightBackend."""
        name = word(info, "update_info", "segment")
        if not _NAME.fullmatch(name):
            raise _wrong("segment", f"must be a name of letters, digits, '_', '-' and '.'; got {name!r}")
        offsets = _offsets(info, tensors)
        try:
            descriptor = os.open(f"{_FOLDER}/{name}", _FLAGS)
        except OSError as error:
            raise _wrong("segment", f"{name!r} cannot be opened: {error.strerror}") from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _wrong("segment", f"{name!r} is no shared memory object")
            size = status.st_size
            for index, (tensor, offset) in enumerate(zip(tensors, offsets, strict=True)):
                if offset % tensor.dtype.itemsize or offset + tensor.nbytes > size:
                    where = f"{tensor.nbytes} bytes from {offset} of a segment of {size}"
                    raise _wrong(f"offsets.{index}", f"puts {tensor.name!r} outside, or off its alignment: {where}")
            mapped = (
                mmap.mmap(descriptor, size, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED) if size else mmap.mmap(-1, 1)
            )
        finally:
            os.close(descriptor)
        return _read(mapped, tensors, offsets)

    def alive(self) -> bool:
        """There is no connection that could end."""
        return True

    def close(self) -> None:
        """There is nothing to close."""


def _offsets(info: Mapping[str, Any], tensors: Sequence[TensorDescription]) -> list[int]:
    given = info.get("offsets")
    if given is None:
        ends = [0]
        for tensor in tensors:
            ends.append(ends[-1] + tensor.nbytes)
        return ends[:-1]
    if not isinstance(given, list) or not all(isinstance(at, int) and at >= 0 for at in given):
        raise _wrong("offsets", f"must be a list of byte offsets; got {given!r}")
    if len(given) != len(tensors):
        raise _wrong("offsets", f"has {len(given)} entries, names {len(tensors)}")
    return given


def _read(mapped: mmap.mmap, tensors: Sequence[TensorDescription], offsets: Sequence[int]) -> Iterator[Tensor]:
    """Yield copies, so that nothing of ours rests on memory that the trainer may change or take away."""
    with mapped:
        for tensor, offset in zip(tensors, offsets, strict=True):
            count = math.prod(tensor.shape)
            raw = bytearray(mapped[offset : offset + tensor.nbytes])
            flat = torch.frombuffer(raw, dtype=tensor.dtype) if count else torch.empty(0, dtype=tensor.dtype)
            yield flat.view(tensor.shape)


def _wrong(field: str, what: str) -> ControlError:
    return ControlError(f"'update_info.{field}' {what}", "invalid", f"update_info.{field}")
