"""The table of the rotary embedding, with the frequencies of Transformers' definitions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.layers.base import Build
    from octavo.layers.rope_config import RopeConfig

__all__ = ["RopeTable", "frequencies", "head_order"]


class RopeTable:
    """Cosines and sines of every position, in the model's dtype, or with `wide` in float32, as is the rotation then.

    Dimensions that are not rotated have cosine 1 and sine 0: see `head_order`.
    """

    def __init__(self, config: RopeConfig, build: Build, wide: bool = False) -> None:
        turning, scale = frequencies(config, build.max_positions)
        still = config.head_dim // 2 - len(turning)
        angles = torch.arange(build.max_positions, dtype=torch.float32).unsqueeze(1) * turning  # [positions, R / 2]
        pad = torch.ones(build.max_positions, still)
        cos, sin = torch.cat((angles.cos() * scale, pad), dim=-1), torch.cat((angles.sin() * scale, 0 * pad), dim=-1)
        if not len(turning):  # every position is alike
            cos, sin = cos[:1], sin[:1]
        shape = (build.max_positions, config.head_dim)
        dtype = torch.float32 if wide else build.dtype
        self._cos = torch.cat((cos, cos), dim=-1).to(device=build.device, dtype=dtype).expand(shape)  # [positions, D]
        self._sin = torch.cat((sin, sin), dim=-1).to(device=build.device, dtype=dtype).expand(shape)  # likewise

    def __call__(self, positions: Tensor) -> tuple[Tensor, Tensor]:  # [T] int64, not negative -> [T, D], twice
        return self._cos.index_select(0, positions), self._sin.index_select(0, positions)


def head_order(config: RopeConfig) -> Tensor | None:  # [D] int64
    """Return which dimension of a checkpoint's head lies where in ours; None: each at its place.

    Kernels rotate dimension i with i + D / 2. Models that rotate neighbours, or only the first R dimensions, get there
    by another order of the rows that make queries and keys: scores are sums over dimensions, so that no order changes
    them.
    """
    dim, rotary = config.head_dim, config.rotary_dim
    if rotary == dim and not config.interleaved:
        return None
    first = torch.arange(0, rotary, 2) if config.interleaved else torch.arange(rotary // 2)
    second = first + (1 if config.interleaved else rotary // 2)
    still = torch.arange(rotary, dim)
    half = len(still) // 2
    return torch.cat((first, still[:half], second, still[half:]))


def frequencies(config: RopeConfig, longest: int = 0) -> tuple[Tensor, float]:  # [R / 2] float32
    """Return the angle per position of each pair of rotated dimensions, and the factor on cosines and sines.

    `longest`: positions that will be asked for. "dynamic" and "longrope", whose frequencies depend on a sequence's
    length in Transformers, take those of a sequence of this length for all: a key in the cache keeps its rotation.
    """
    dim = config.rotary_dim
    if config.rope_type == "none":
        return torch.zeros(0), 1.0
    plain = 1.0 / (config.theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim))
    scale = 1.0
    if config.rope_type == "linear":
        plain = plain / config.factor
    elif config.rope_type == "dynamic":
        plain = _dynamic(config, longest)
    elif config.rope_type == "llama3":
        plain = _llama3(plain, config)
    elif config.rope_type == "yarn":
        plain, scale = _yarn(config)
    elif config.rope_type == "longrope":
        plain, scale = _longrope(config, longest)
    if config.freq_factors:
        plain = plain / torch.tensor(config.freq_factors, dtype=torch.float32)
    return plain, scale


def _dynamic(config: RopeConfig, longest: int) -> Tensor:  # [R / 2] float32
    """NTK-aware scaling: the base grows with what the sequence has beyond the context (by bloc97 and emozilla)."""
    dim, length = config.rotary_dim, config.max_position
    stretch = config.factor * max(longest, length) / length - (config.factor - 1)
    theta: float = config.theta * stretch ** (dim / (dim - 2))
    return 1.0 / (theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim))


def _longrope(config: RopeConfig, longest: int) -> tuple[Tensor, float]:  # [R / 2] float32
    """Each frequency has a divisor, one for short sequences and one for long ones (arXiv 2402.13753)."""
    divisors = config.long_factor if longest > config.original_max_position else config.short_factor
    scale = config.attention_factor
    if scale is None:
        factor = config.factor
        scale = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(config.original_max_position))
    powers = config.theta ** (torch.arange(0, config.rotary_dim, 2, dtype=torch.float32) / config.rotary_dim)
    return 1.0 / (torch.tensor(divisors, dtype=torch.float32) * powers), scale


def _llama3(plain: Tensor, config: RopeConfig) -> Tensor:  # [D / 2] float32 -> the same
    """Slow frequencies are divided by the factor, fast ones kept, those between interpolated (Llama 3.1)."""
    wavelength = 2 * math.pi / plain
    longest = config.original_max_position / config.low_freq_factor
    shortest = config.original_max_position / config.high_freq_factor
    smooth = (config.original_max_position / wavelength - config.low_freq_factor) / (
        config.high_freq_factor - config.low_freq_factor
    )
    slow = plain / config.factor
    between = (1 - smooth) * slow + smooth * plain
    return plain.where(wavelength < shortest, slow.where(wavelength > longest, between))


def _yarn(config: RopeConfig) -> tuple[Tensor, float]:  # [D / 2] float32
    """NTK by parts (arXiv 2309.00071): dimensions with few rotations are interpolated, those with many kept."""
    dim, factor = config.rotary_dim, config.factor
    powers = config.theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    low, high = _turns_to_dim(config.beta_fast, config), _turns_to_dim(config.beta_slow, config)
    if config.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    width = high - low if high != low else 0.001
    ramp = ((torch.arange(dim // 2, dtype=torch.float32) - low) / width).clamp(0, 1)
    kept = 1 - ramp
    return (1.0 / (factor * powers)) * (1 - kept) + (1.0 / powers) * kept, _yarn_scale(config)


def _turns_to_dim(turns: float, config: RopeConfig) -> float:
    """Return the dimension, as a fraction, that rotates `turns` times within the original context."""
    length = config.original_max_position
    return config.rotary_dim * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(config.theta))


def _yarn_scale(config: RopeConfig) -> float:
    if config.attention_factor is not None:
        return config.attention_factor

    def magnitude(weight: float) -> float:
        return 1.0 if config.factor <= 1 else 0.1 * weight * math.log(config.factor) + 1.0

    if config.mscale and config.mscale_all_dim:
        return magnitude(config.mscale) / magnitude(config.mscale_all_dim)
    return magnitude(1.0)
