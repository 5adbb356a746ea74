"""How many threads a worker computes with, and how they wait. Settled before torch is imported."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["choose_threads", "set_environment"]


def choose_threads(asked: int, ranks: int, cpus: int | None = None) -> int:
    """Return `asked`, or if it is 0 this rank's share of the CPUs that this process may use, but one.

    The one is for the frontend, the core and the system: where OpenMP's threads compete with other processes for their
    CPUs, every parallel region waits for the thread that has none (measured: 2 threads on 2 shared cores decode less
    than half as fast as 1).
    """
    if asked:
        return asked
    if cpus is None:
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, (cpus - 1) // ranks)


def set_environment(threads: int, environ: MutableMapping[str, str] = os.environ) -> None:
    """Tell OpenMP and MKL, which read the environment when torch loads them. What the user set stays."""
    environ.setdefault("OMP_NUM_THREADS", str(threads))
    environ.setdefault("MKL_NUM_THREADS", str(threads))
    # Waiting threads sleep instead of spinning: the cores are not ours alone.
    environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
