"""The masks of a SamplePlan, on their way to the logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from octavo.errors import ProtocolError
from octavo.workers.transfer import upload

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import MaskOps
    from octavo.wire.worker import SamplePlan

__all__ = ["mask_logits"]


def mask_logits(
    logits: Tensor, slots: np.ndarray[Any, Any], plan: SamplePlan, ops: MaskOps, device: str
) -> None:  # [R, V] dtype, [R] integers
    """Set the logits of tokens that the plan's masks exclude to -inf, in place. `slots`: of the rows of `logits`.

    Raises ProtocolError for masks of another vocabulary, or of slots that do not draw.
    """
    masked = np.frombuffer(plan.slots, dtype="<i4")
    words = -(-logits.shape[1] // 32)
    if len(plan.masks) != 4 * words * len(masked):
        raise ProtocolError(
            f"step {plan.step}: {len(plan.masks)} bytes of masks for {len(masked)} rows of {logits.shape[1]} tokens"
        )
    rows = {int(slot): row for row, slot in enumerate(slots)}
    if any(int(slot) not in rows for slot in masked):
        raise ProtocolError(f"step {plan.step}: masks for slots {masked.tolist()}, {list(rows)} draw")
    if not len(masked):
        return
    index = np.array([rows[int(slot)] for slot in masked], dtype=np.int64)
    masks = np.frombuffer(plan.masks, dtype="<i4").reshape(len(masked), words).astype(np.int32)
    ops.apply_token_mask(logits, upload(index, device), upload(masks, device))
