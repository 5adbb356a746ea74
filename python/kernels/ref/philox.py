"""Counter-based noise: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11).

The key is the row's u64 seed. Counter word 0 is token // 4, words 1 and 2 are the position (low, high), word 3 is the
stream, 0 for sampling; the four output words belong to tokens 4i … 4i + 3. A word x becomes
v = min((float32(x) + 0.5) * 2**-32, 1 - 2**-24) and g = -log(-log1p(-v)) in float32. The cap keeps g finite where
float32(x) rounds to 2**32. The large g, which decide, come from small v, where float32 is finest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["gumbel", "gumbel_of", "philox"]

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW = 0xFFFFFFFF
_ROUNDS = 10


def philox(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]
) -> tuple[Tensor, ...]:  # int64 -> int64
    """Return the four output words. All words are int64 tensors in 0 … 2**32 - 1, of shapes that broadcast."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        # The product of two u32 overflows int64; the wrapped bits are still those of the u64.
        p0, p1 = c0 * _M0, c2 * _M1
        c0, c1, c2, c3 = ((p1 >> 32) & _LOW) ^ c1 ^ k0, p1 & _LOW, ((p0 >> 32) & _LOW) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return c0, c1, c2, c3


def gumbel(seed: Tensor, position: Tensor, vocab: int) -> Tensor:  # [R] int64, [R] int64 -> [R, vocab] float32
    """Return g(seed, position, token) for every token."""
    quads = torch.arange(-(-vocab // 4), device=seed.device).unsqueeze(0)  # [1, quads]
    return _to_gumbel(_words(seed, position, quads).flatten(1)[:, :vocab])


def gumbel_of(seed: Tensor, position: Tensor, tokens: Tensor) -> Tensor:  # [R], [R], [R, n] int64 -> [R, n] float32
    """Return g(seed, position, token) for each row's tokens."""
    words = _words(seed, position, tokens // 4)
    return _to_gumbel(words.gather(2, (tokens % 4).unsqueeze(2)).squeeze(2))


def _words(seed: Tensor, position: Tensor, quads: Tensor) -> Tensor:  # [R], [R], [R or 1, n] int64 -> [R, n, 4] int64
    seed, position = seed.unsqueeze(1), position.unsqueeze(1)
    counter = (quads, position & _LOW, (position >> 32) & _LOW, torch.zeros_like(quads))
    return torch.stack(philox(counter, (seed & _LOW, (seed >> 32) & _LOW)), dim=-1)


def _to_gumbel(words: Tensor) -> Tensor:  # [R, n] int64 -> [R, n] float32
    uniform = ((words.to(torch.float32) + 0.5) * 2.0**-32).clamp_(max=1.0 - 2.0**-24)
    return uniform.neg_().log1p_().neg_().log_().neg_()
