# mypy: disable-error-code="import-untyped, untyped-decorator"
"""Memory on its way to L2 before anybody waits for it."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["fetch"]


@triton.jit
def fetch(address: tl.tensor, size: tl.tensor, wanted: tl.tensor) -> None:  # [threads] pointers, int32, [threads] bool
    """Ask for `size` bytes at each address that is wanted, one a thread; addresses and size are multiples of 16.

    The bulk prefetch of compute capability 9.0: nothing waits for it, and what is never read costs its transfer.
    """
    place = address.to(tl.int64)
    tl.inline_asm_elementwise(
        """
        {
        .reg .pred p;
        setp.ne.s32 p, $3, 0;
        @p cp.async.bulk.prefetch.L2.global [$1], $2;
        mov.u32 $0, 0;
        }
        """,
        "=r,l,r,r",
        [place, size + (place * 0).to(tl.int32), wanted.to(tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
