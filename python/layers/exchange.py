"""How ranks that hold different experts serve each other's tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import distributed

from octavo.errors import PeerError
from octavo.layers.parallel import share

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

__all__ = ["Exchange", "RankExchange"]


class Exchange(Protocol):
    """Ranks that spread experts among them. All ranks call the same methods in the same order."""

    def held(self, experts: int) -> range:
        """Return those of `experts` that this rank holds."""
        ...

    def apply(
        self,
        x: Tensor,
        experts: Tensor,
        shares: Tensor,
        total: int,
        compute: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:  # [T, H] dtype, [T, k] int64, [T, k] float32 -> [T, H] dtype
        """Return the sum over a token's experts of share * expert(x). T differs between ranks and may be 0.

        `compute` is given rows [M, H] of any rank, and the expert of each [M] int64, counted among those held here; it
        returns what the experts make of them, [M, H] dtype. M > 0.
        """
        ...

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set on any rank."""
        ...


class RankExchange:
    """All ranks of torch.distributed's default group: rows go to the ranks of their experts, and results back.

    Raises PeerError if a rank is gone.
    """

    def __init__(self, rank: int, size: int, device: str) -> None:
        self._rank, self._size, self._device = rank, size, device

    def held(self, experts: int) -> range:
        """See Exchange."""
        return share(experts, self._rank, self._size)

    def apply(
        self,
        x: Tensor,
        experts: Tensor,
        shares: Tensor,
        total: int,
        compute: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:  # [T, H] dtype, [T, k] int64, [T, k] float32 -> [T, H] dtype
        """See Exchange."""
        taken = experts.shape[1]
        firsts = torch.tensor([share(total, rank, self._size).start for rank in range(self._size)], device=x.device)
        owners = torch.bucketize(experts.flatten(), firsts, right=True) - 1  # [T * k]
        order = owners.argsort(stable=True)
        counts = torch.bincount(owners, minlength=self._size)  # rows for each rank
        sends, receives = counts.tolist(), self._swap(counts, None, None).tolist()
        rows = self._swap(x[order // taken], sends, receives)
        which = self._swap(experts.flatten()[order], sends, receives) - self.held(total).start
        results = compute(rows, which) if len(rows) else rows
        returned = self._swap(results, receives, sends)
        answers = torch.empty_like(returned)
        answers[order] = returned
        scaled = answers.view(*experts.shape, x.shape[1]).to(torch.float32) * shares.unsqueeze(-1)
        return scaled.sum(dim=1).to(x.dtype)

    def any(self, flag: bool) -> bool:
        """See Exchange."""
        votes = torch.tensor([int(flag)], device=self._device)
        try:
            distributed.all_reduce(votes, distributed.ReduceOp.MAX)
        except RuntimeError as error:
            raise _lost(error) from error
        return bool(votes.item())

    def _swap(
        self, x: Tensor, sends: list[int] | None, receives: list[int] | None
    ) -> Tensor:  # [M, ...] -> [N, ...], any dtype
        """Send `sends[r]` rows to rank r, in order, and return the `receives[r]` rows of each; None: alike for all."""
        out = x.new_empty((x.shape[0] if receives is None else sum(receives), *x.shape[1:]))
        try:
            distributed.all_to_all_single(out, x.contiguous(), receives, sends)
        except RuntimeError as error:
            raise _lost(error) from error
        return out


def _lost(error: RuntimeError) -> PeerError:
    reason = str(error).partition("\n")[0]
    return PeerError(f"a rank that holds experts of this model is gone: {reason}")
