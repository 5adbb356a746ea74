"""The table of the rotary embedding, with the frequencies of Transformers' definitions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.layers.base import Build
    from octavo.layers.rope_config import RopeConfig

__all__ = ["RopeTable", "frequencies"]


class RopeTable:
    """Cosines and sines of every position, in the model's dtype."""

    def __init__(self, config: RopeConfig, build: Build) -> None:
        inverse, scale = frequencies(config)
        angles = torch.arange(build.max_positions, dtype=torch.float32).unsqueeze(1) * inverse  # [positions, D / 2]
        whole = torch.cat((angles, angles), dim=-1)
        # [positions, D] dtype each
        self._cos = (whole.cos() * scale).to(device=build.device, dtype=build.dtype)
        self._sin = (whole.sin() * scale).to(device=build.device, dtype=build.dtype)

    def __call__(self, positions: Tensor) -> tuple[Tensor, Tensor]:  # [T] int64, not negative -> [T, D] dtype, twice
        return self._cos.index_select(0, positions), self._sin.index_select(0, positions)


def frequencies(config: RopeConfig) -> tuple[Tensor, float]:  # [D / 2] float32
    """Return the angle per position of each pair of dimensions, and the factor on cosines and sines."""
    dim = config.head_dim
    plain = 1.0 / (config.theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim))
    scale = 1.0
    if config.rope_type == "linear":
        plain = plain / config.factor
    elif config.rope_type == "llama3":
        plain = _llama3(plain, config)
    elif config.rope_type == "yarn":
        plain, scale = _yarn(config)
    if config.freq_factors:
        plain = plain / torch.tensor(config.freq_factors, dtype=torch.float32)
    return plain, scale


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
    dim, factor = config.head_dim, config.factor
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
    return config.head_dim * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(config.theta))


def _yarn_scale(config: RopeConfig) -> float:
    if config.attention_factor is not None:
        return config.attention_factor

    def magnitude(weight: float) -> float:
        return 1.0 if config.factor <= 1 else 0.1 * weight * math.log(config.factor) + 1.0

    if config.mscale and config.mscale_all_dim:
        return magnitude(config.mscale) / magnitude(config.mscale_all_dim)
    return magnitude(1.0)
