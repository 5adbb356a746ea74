"""What torch's libraries read of the environment when it is imported: how threads wait, what is kept in memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["set_environment"]

#: Kernels that oneDNN keeps, and torch's layer above it: one for each product and number of rows, about 0.6 MB each and
#: made in as many milliseconds. Of their default, 1,024 of each, a worker grows by hundreds of megabytes, over hours.
_ONEDNN_KERNELS = "128"


def set_environment(threads: int, environ: MutableMapping[str, str] = os.environ) -> None:
    """Tell OpenMP and MKL, which read the environment when torch loads them. What the user set stays."""
    environ.setdefault("OMP_NUM_THREADS", str(threads))
    environ.setdefault("MKL_NUM_THREADS", str(threads))
    # Waiting threads sleep instead of spinning: the cores are not ours alone.
    environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", _ONEDNN_KERNELS)
    environ.setdefault("LRU_CACHE_CAPACITY", _ONEDNN_KERNELS)
