"""The rotary embedding's settings as configs spell them. Free of torch: the supervisor checks them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from octavo.errors import ModelError

__all__ = ["ROPE_TYPES", "RopeConfig"]

#: "dynamic" and "longrope" are absent on purpose: their frequencies depend on the length of the sequence, so that keys
#: in the cache would belong to another rotation than later queries.
ROPE_TYPES = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Which rotation a position gets. Fields mean what they mean in Transformers' `rope_parameters`."""

    head_dim: int
    theta: float = 10000.0
    rope_type: str = "default"
    factor: float = 1.0
    original_max_position: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    freq_factors: tuple[float, ...] = ()  # divisors of the frequencies, from GGUF files; empty: none

    @classmethod
    def parse(cls, config: dict[str, Any], head_dim: int) -> RopeConfig:
        """Read `rope_parameters`, or `rope_theta` and `rope_scaling` of older configs.

        Raises ModelError for a type that is not supported and for parameters that it lacks.
        """
        params = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
        kind = str(params.get("rope_type", params.get("type", "default")))
        if kind not in ROPE_TYPES:
            known = ", ".join(ROPE_TYPES)
            raise ModelError(f"the rope type {kind!r} is not supported; known: {known}. Choose another model.")
        if float(params.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))) != 1.0:
            raise ModelError("partial_rotary_factor other than 1 is not supported. Choose another model.")
        if kind != "default" and params.get("factor") is None:
            raise ModelError(f"rope type {kind!r} lacks 'factor' in rope_parameters. Correct config.json.")
        original = params.get("original_max_position_embeddings", config.get("max_position_embeddings", 0))
        return cls(
            head_dim=head_dim,
            theta=float(params.get("rope_theta", config.get("rope_theta", 10000.0))),
            rope_type=kind,
            factor=float(params.get("factor") or 1.0),
            original_max_position=int(original),
            low_freq_factor=float(params.get("low_freq_factor", 1.0)),
            high_freq_factor=float(params.get("high_freq_factor", 4.0)),
            attention_factor=_maybe(params.get("attention_factor")),
            mscale=_maybe(params.get("mscale")),
            mscale_all_dim=_maybe(params.get("mscale_all_dim")),
            beta_fast=float(params.get("beta_fast") or 32),
            beta_slow=float(params.get("beta_slow") or 1),
            truncate=bool(params.get("truncate", True)),
            freq_factors=tuple(params.get("freq_factors", ())),
        )


def _maybe(value: Any) -> float | None:
    return None if value is None else float(value)
