"""Recorded decode steps: CUDA graphs that share one pool of memory."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from octavo.kernels.triton.ahead import compiling
from octavo.kernels.triton.common import num_processors
from octavo.kernels.triton.prefill import WORK_TOKENS
from octavo.kernels.triton.tiles import MERGE_FIELDS, TILE_FIELDS, cut_work, work_room

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from torch import Tensor

    from octavo.kernels.api import DecodeInputs, DeviceStep, PreparedAttention
    from octavo.kernels.triton.attention import TritonAttention
    from octavo.kernels.triton.state import TritonState

__all__ = ["TritonReplay", "most_rows"]


def most_rows(capability: tuple[int, int]) -> int:
    """Return the rows from which on launches take less time than what they launch: more, the faster the device."""
    return 1024 if capability >= (10, 0) else 512


class TritonReplay:
    """ReplayOps by CUDA graphs. Record the largest step first: the pool then holds all others."""

    def __init__(self, attention: TritonAttention, state: TritonState) -> None:
        self._attention = attention
        self._state = state
        self._stream: torch.cuda.Stream | None = None
        self._pool: Any = None
        self._recorded: weakref.WeakSet[torch.cuda.CUDAGraph] = weakref.WeakSet()  # all of them in the pool
        self._rehearsing = False
        self._rehearsed = False

    @property
    def most_rows(self) -> int:
        return most_rows(torch.cuda.get_device_capability())

    def gather_decodes(
        self, tokens: Tensor, lengths: Tensor, tables: Tensor, slots: Tensor, out: DecodeInputs, block_tokens: int
    ) -> None:  # [S, L] int32, [S] int32, [S, blocks] int32, [R] int64
        self._state.gather_decodes(tokens, lengths, tables, slots, out, block_tokens)

    def prepare(self, step: DeviceStep, heads: int) -> PreparedAttention:
        return self._attention.prepare_device(step, heads)

    def work_size(self, tokens: int) -> int:
        tiles, merges = work_room(tokens, WORK_TOKENS)
        return tiles * TILE_FIELDS + merges * MERGE_FIELDS

    def cut(
        self,
        starts: np.ndarray[Any, Any],
        counts: np.ndarray[Any, Any],
        first: int,
        heads: int,
        work: np.ndarray[Any, np.dtype[np.int32]],
    ) -> bool:
        programs = max(1, num_processors(self._device()) // heads)
        return cut_work((starts, counts), first, WORK_TOKENS, programs, work)

    def _device(self) -> torch.device:
        return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")

    def rehearse(self, body: Callable[[], object], threads: int, whole: bool) -> int:
        self._rehearsing = True
        try:
            with compiling(threads, self._device()) as count:
                body()
            body()
            torch.cuda.current_stream().synchronize()
        finally:
            self._rehearsing = False
        self._rehearsed = whole
        return count.compiled

    def record(self, body: Callable[[], object]) -> Callable[[], None]:
        if self._rehearsing:
            body()
            return _nothing
        if self._stream is None:
            self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        first = not self._recorded
        if first:  # a pool whose recordings are all gone takes no more
            self._pool = torch.cuda.graph_pool_handle()
        self._stream.wait_stream(torch.cuda.current_stream())
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream):
            if first or not self._rehearsed:
                # Kernels are compiled and loaded, and workspaces made, outside of the recording.
                body()
                self._stream.synchronize()
            # Other threads of the process may go on with what they do on the device. What a rehearsal has not loaded
            # may be loaded in between: nothing of that waits for the stream.
            graph.capture_begin(pool=self._pool, capture_error_mode="relaxed" if self._rehearsed else "thread_local")
            try:
                body()
            finally:
                graph.capture_end()
        self._recorded.add(graph)
        torch.cuda.current_stream().wait_stream(self._stream)
        return graph.replay


def _nothing() -> None:
    """Replay what a rehearsal has recorded."""
