# mypy: disable-error-code="import-untyped"
"""Kernels compiled ahead of their first launch, several at a time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import triton
from triton.runtime.jit import JITFunction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

__all__ = ["Count", "compiling"]


class _Gated(ThreadPoolExecutor):
    """Begins when it is told to: threads that compile would take the interpreter from what finds kernels."""

    def __init__(self, threads: int, device: torch.device | None) -> None:
        super().__init__(threads, "compile")
        self.gate = threading.Event()
        self._device = device

    def submit(self, fn: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        return super().submit(self._run, fn, args, options)

    def _run(self, fn: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        self.gate.wait()
        kernel = fn(*args, **options)
        if self._device is not None:
            torch.cuda.set_device(self._device)
            assert kernel.run is not None  # asking loads the kernel, and compiles what launches it
        return kernel


@dataclass(slots=True)
class Count:
    """What compiling ahead came to."""

    compiled: int = 0  # kernels that Triton's cache on disk did not have


@contextmanager
def compiling(threads: int, device: torch.device | None = None) -> Iterator[Count]:
    """Within it, launches of this thread do nothing; leaving compiles their kernels in other threads.

    On `device` they are loaded too.

    What they would have written stays as it was. Raises what compiling raises.
    """
    count, lock, launch, me = Count(), threading.Lock(), JITFunction.run, threading.get_ident()

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        return launch(self, *args, grid=grid, warmup=warmup or threading.get_ident() == me, **options)

    def heard(*, cache_hit: bool, **_: Any) -> None:
        if not cache_hit:
            with lock:
                count.compiled += 1

    before = triton.knobs.compilation.listener
    with _Gated(threads, device) as pool:
        try:
            JITFunction.run = run
            triton.knobs.compilation.listener = heard
            with triton.AsyncCompileMode(pool):
                try:
                    yield count
                finally:
                    pool.gate.set()
        finally:
            JITFunction.run = launch
            triton.knobs.compilation.listener = before
