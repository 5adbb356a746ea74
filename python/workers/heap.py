"""The heap of a worker: what the C library keeps of freed memory, and when it gives it back.

Buffers of a step grow with its sequences, and small things that last (kernels of oneDNN) come to lie between them:
holes stay, of which the library returns none by itself, so that a worker would grow. Returning them costs some
milliseconds, and faults when the pages are used again: it is done when there is much of it, or nothing else to do.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HeapKeeper", "free_heap_bytes", "trim_heap"]

#: Messages, which are mostly steps, between two looks at the heap.
_EVERY = 256
#: Free bytes that are too many while steps run.
_MOST = 64 << 20
#: Free bytes that are worth the work when nothing runs.
_SOME = 4 << 20

_libc = ctypes.CDLL(None)


class _Info(ctypes.Structure):
    """As mallinfo2(3) has it."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
    )]  # fmt: skip


if hasattr(_libc, "mallinfo2"):
    _libc.mallinfo2.restype = _Info


def free_heap_bytes() -> int:
    """Return what is free in the heap and not given back for sure; 0 where the C library does not say."""
    return int(_libc.mallinfo2().fordblks) if hasattr(_libc, "mallinfo2") else 0


def trim_heap() -> None:
    """Give all free pages of the heap back to the system, where the C library can."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)


class HeapKeeper:
    """Belongs to the device loop, which says what happens."""

    def __init__(
        self, free: Callable[[], int] = free_heap_bytes, trim: Callable[[], None] = trim_heap, every: int = _EVERY
    ) -> None:
        self._free = free
        self._trim = trim
        self._every = every
        self._since = 0  # messages since the last look
        self._rests = True  # nothing came since the last rest

    @property
    def rests(self) -> bool:
        """Whether a rest now would find nothing new."""
        return self._rests

    def worked(self) -> None:
        """A message was handled."""
        self._rests = False
        self._since += 1
        if self._since >= self._every:
            self._since = 0
            if self._free() > _MOST:
                self._trim()

    def rested(self) -> None:
        """There was nothing to do for a while. Only the first such while after a message counts."""
        if not self._rests:
            self._rests = True
            self._since = 0
            if self._free() > _SOME:
                self._trim()
