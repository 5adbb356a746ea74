"""What single rows ask of their logits, as LogitsOps takes it: what names tokens lies on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BannedWords", "Edits", "Markers", "Said", "Thinking"]


@dataclass(frozen=True, slots=True)
class Edits:
    """What a row's request says of single tokens, in the order in which it is applied."""

    row: int  # of the logits
    allowed: Tensor | None  # [n] int64: no others are
    bias_ids: Tensor | None  # [n] int64
    biases: Tensor | None  # [n] float32, added
    banned: Tensor | None  # [n] int64


@dataclass(frozen=True, slots=True)
class Said:
    """Where a row's tokens so far stand."""

    row: int  # of the logits
    slot: int  # row of the tokens of all slots
    prompt_len: int
    length: int  # tokens, those of the prompt included


@dataclass(frozen=True, slots=True)
class BannedWords:
    """Words that a row must not say. Shorter ones are filled with -2 in front."""

    said: Said
    words: Tensor  # [n, m] int64


@dataclass(frozen=True, slots=True)
class Markers:
    """What begins and ends thoughts, on the device; none is empty."""

    start: Tensor  # [a] int64
    end: Tensor  # [b] int64: what is forced
    close: Tensor  # [c] int64: an end of `end`


@dataclass(frozen=True, slots=True)
class Thinking:
    """How many tokens a row may think."""

    said: Said
    markers: Markers
    budget: int
