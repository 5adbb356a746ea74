"""How the threads wait that a worker computes with. Settled before torch is imported."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["set_environment"]


def set_environment(threads: int, environ: MutableMapping[str, str] = os.environ) -> None:
    """Tell OpenMP and MKL, which read the environment when torch loads them. What the user set stays."""
    environ.setdefault("OMP_NUM_THREADS", str(threads))
    environ.setdefault("MKL_NUM_THREADS", str(threads))
    # Waiting threads sleep instead of spinning: the cores are not ours alone.
    environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
