"""Weights in shared memory, for a server on the same host."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["described", "shared_weights"]

_SHARED = Path("/dev/shm")


def described(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Return names, dtypes and shapes of tensors as update_info has them; names are the checkpoint's."""
    return {
        "names": list(weights),
        "dtype_names": [str(tensor.dtype).removeprefix("torch.") for tensor in weights.values()],
        "shapes": [list(tensor.shape) for tensor in weights.values()],
    }


@contextlib.contextmanager
def shared_weights(weights: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Put torch tensors into a segment of shared memory; yield the update_info that names it.

    The segment is removed at the end of the block, by when the server has read it: `update_weights` returns then.
    """
    import torch

    name = f"octavo-{os.getpid()}-{secrets.token_hex(4)}"
    path = _SHARED / name
    try:
        with path.open("xb") as segment:
            os.chmod(path, 0o600)
            for tensor in weights.values():
                segment.write(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
        yield {**described(weights), "segment": name}
    finally:
        path.unlink(missing_ok=True)
