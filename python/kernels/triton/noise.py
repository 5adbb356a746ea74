# mypy: disable-error-code="import-untyped, untyped-decorator"
"""Gumbel noise from the counters of kernels/ref/philox.py, bit for bit the same words."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["gumbel_quads"]


@triton.jit
def gumbel_quads(
    seed: tl.tensor, position: tl.tensor, quads: tl.tensor
) -> tl.tensor:  # int64, int64, [Q] int32 -> [Q, 4] float32
    """Return g(seed, position, token) of the tokens 4 * quads … 4 * quads + 3."""
    zero = (quads * 0).to(tl.uint32)
    low = (position & 0xFFFFFFFF).to(tl.uint32) + zero
    high = ((position >> 32) & 0xFFFFFFFF).to(tl.uint32) + zero
    w0, w1, w2, w3 = tl.philox(seed, quads.to(tl.uint32), low, high, zero, n_rounds=10)
    words = tl.join(tl.join(w0, w2), tl.join(w1, w3)).reshape(quads.shape[0], 4)
    v = tl.minimum((words.to(tl.float32) + 0.5) * 2.3283064365386963e-10, 0.99999994)
    # -log1p(-v). The large g come from small v, where log(1 - v) has lost its digits: a series there.
    series = v * (1.0 + v * (0.5 + v * (1.0 / 3 + v * (0.25 + v * (0.2 + v * (1.0 / 6 + v * (1.0 / 7)))))))
    exponential = tl.where(v < 0.0625, series, -tl.log(1.0 - v))
    return -tl.log(exponential)
