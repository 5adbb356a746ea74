"""The rotary embedding's settings as configs spell them. Free of torch: the supervisor checks them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from octavo.errors import ModelError

__all__ = ["LLAMA_ROPE", "ROPE_TYPES", "RopeConfig", "RopeDefaults"]

ROPE_TYPES = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")

#: Keys of nested `rope_parameters`: one set for each type of layer.
_LAYER_TYPES = ("full_attention", "sliding_attention")


@dataclass(frozen=True, slots=True)
class RopeDefaults:
    """What a family takes where its config says nothing, and how its heads are laid out."""

    theta: float = 10000.0
    partial: float | None = None  # share of a head that is rotated; None: all of it, and no config may say otherwise
    interleaved: bool = False  # neighbours are rotated, not the two halves of a head
    aliases: tuple[tuple[str, str], ...] = ()  # rope types that older configs of the family call otherwise


LLAMA_ROPE = RopeDefaults()


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Which rotation a position gets. Fields mean what they mean in Transformers' `rope_parameters`."""

    head_dim: int
    rotary_dim: int  # dimensions of a head that are rotated
    theta: float = 10000.0
    rope_type: str = "default"  # one of ROPE_TYPES, or "none": the layer has no rotation
    interleaved: bool = False
    factor: float = 1.0
    max_position: int = 0
    original_max_position: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()
    freq_factors: tuple[float, ...] = ()  # divisors of the frequencies, from GGUF files; empty: none

    @classmethod
    def still(cls, head_dim: int) -> RopeConfig:
        """Return the settings of a layer that rotates nothing."""
        return cls(head_dim, 0, rope_type="none")

    @classmethod
    def parse(
        cls, config: dict[str, Any], head_dim: int, defaults: RopeDefaults = LLAMA_ROPE, layer_type: str = ""
    ) -> RopeConfig:
        """Read `rope_parameters`, or `rope_theta` and `rope_scaling` of older configs.

        Parameters may be nested by type of layer: then those of `layer_type` are read, by default of full attention.
        Raises ModelError for a type that is not supported, for parameters that it lacks, and for spellings that
        contradict each other.
        """
        params = _params(config, layer_type or "full_attention")
        kind = str(params.get("rope_type", params.get("type", "default")))
        kind = dict(defaults.aliases).get(kind, kind)
        if kind not in ROPE_TYPES:
            known = ", ".join(ROPE_TYPES)
            raise ModelError(f"the rope type {kind!r} is not supported; known: {known}. Choose another model.")
        max_position = int(config.get("max_position_embeddings") or 0)
        original = int(params.get("original_max_position_embeddings") or max_position)
        rope = cls(
            head_dim=head_dim,
            rotary_dim=_rotary_dim(config, params, head_dim, defaults),
            theta=float(_first(params.get("rope_theta"), config.get("rope_theta"), defaults.theta)),
            rope_type=kind,
            interleaved=defaults.interleaved,
            factor=float(_first(params.get("factor"), _ratio(kind, max_position, original), 1.0)),
            max_position=max_position,
            original_max_position=original,
            low_freq_factor=float(params.get("low_freq_factor", 1.0)),
            high_freq_factor=float(params.get("high_freq_factor", 4.0)),
            attention_factor=_maybe(params.get("attention_factor")),
            mscale=_maybe(params.get("mscale")),
            mscale_all_dim=_maybe(params.get("mscale_all_dim")),
            beta_fast=float(params.get("beta_fast") or 32),
            beta_slow=float(params.get("beta_slow") or 1),
            truncate=bool(params.get("truncate", True)),
            short_factor=tuple(params.get("short_factor") or ()),
            long_factor=tuple(params.get("long_factor") or ()),
            freq_factors=tuple(params.get("freq_factors", ())),
        )
        _check(rope, params)
        return rope


def _params(config: dict[str, Any], layer_type: str) -> dict[str, Any]:
    """Return the parameters of one type of layer, whichever way the config spells them."""
    new, old = dict(config.get("rope_parameters") or {}), dict(config.get("rope_scaling") or {})
    nested = [key for key in new if key in _LAYER_TYPES]
    if nested:
        new = dict(new.get(layer_type) or {})
    if layer_type == "full_attention":  # which is what the keys of older configs mean
        _agree(new, old, "rope_scaling")
        _agree(new, {"rope_theta": config.get("rope_theta")}, "rope_theta")
    else:
        old = {}
    params = old | new
    original = config.get("original_max_position_embeddings")
    if original is not None:
        params["original_max_position_embeddings"] = original
    return params


def _agree(new: dict[str, Any], old: dict[str, Any], key: str) -> None:
    for name, value in old.items():
        name = "rope_type" if name == "type" else name
        if new.get(name) is not None and value is not None and new[name] != value:
            raise ModelError(
                f"config.json contradicts itself: rope_parameters has {name} {new[name]!r}, {key} says {value!r}. "
                "Remove one of them."
            )


def _rotary_dim(config: dict[str, Any], params: dict[str, Any], head_dim: int, defaults: RopeDefaults) -> int:
    given = _first(params.get("partial_rotary_factor"), config.get("partial_rotary_factor"), defaults.partial, 1.0)
    share = float(given)
    if share != 1.0 and defaults.partial is None:
        raise ModelError(f"partial_rotary_factor {share} is not supported for this model. Choose another model.")
    rotary = int(head_dim * share)
    if not 0 < rotary <= head_dim or rotary % 2 or head_dim % 2:
        raise ModelError(f"partial_rotary_factor {share} of head_dim {head_dim} is not an even number of dimensions.")
    return rotary


def _ratio(kind: str, max_position: int, original: int) -> float | None:
    """Return the factor that follows from the two context lengths, which yarn and longrope configs may leave out."""
    return max_position / original if kind in ("yarn", "longrope") and original else None


def _check(rope: RopeConfig, params: dict[str, Any]) -> None:
    kind = rope.rope_type
    if kind in ("linear", "dynamic", "llama3", "yarn") and "factor" not in params:
        raise ModelError(f"rope type {kind!r} lacks 'factor' in rope_parameters. Correct config.json.")
    if kind in ("llama3", "yarn", "longrope", "dynamic") and not rope.original_max_position:
        raise ModelError(f"rope type {kind!r} lacks 'original_max_position_embeddings'. Correct config.json.")
    if kind == "longrope":
        for name, factors in (("short_factor", rope.short_factor), ("long_factor", rope.long_factor)):
            if len(factors) != rope.rotary_dim // 2:
                raise ModelError(
                    f"rope type 'longrope': {name} has {len(factors)} numbers, not {rope.rotary_dim // 2}, half of the "
                    "rotated dimensions of a head. Correct config.json."
                )


def _first(*values: Any) -> Any:
    """Return the first that is not None."""
    return next((value for value in values if value is not None), None)


def _maybe(value: Any) -> float | None:
    return None if value is None else float(value)
