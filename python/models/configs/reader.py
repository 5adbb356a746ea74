"""Checked access to a config.json, with a family's defaults for what it leaves out."""

from __future__ import annotations

from typing import Any

from octavo.errors import ModelError

__all__ = ["Reader"]


class Reader:
    """A config.json and the defaults of Transformers' config class of its family.

    Methods raise ModelError, which names the key, for what is absent or of the wrong kind.
    """

    def __init__(self, config: dict[str, Any], **defaults: Any) -> None:
        self.config = config
        self._defaults = defaults

    def get(self, key: str) -> Any:
        """Return the value, or the default where it is absent; None where there is none either."""
        return self.config[key] if key in self.config else self._defaults.get(key)

    def size(self, key: str, otherwise: int | None = None) -> int:
        """Return a positive count; `otherwise` where it is absent or null."""
        value = self.get(key)
        value = otherwise if value is None else value
        if value is None:
            raise ModelError(f"config.json lacks {key!r}. Download the model's config.json again.")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ModelError(f"config.json: {key!r} is {value!r}, not a positive number. Correct config.json.")
        return value

    def number(self, key: str, otherwise: float | None = None) -> float:
        """Return a number; `otherwise` where it is absent or null."""
        value = self.get(key)
        value = otherwise if value is None else value
        if value is None:
            raise ModelError(f"config.json lacks {key!r}. Download the model's config.json again.")
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ModelError(f"config.json: {key!r} is {value!r}, not a number. Correct config.json.")
        return float(value)

    def flag(self, key: str) -> bool:
        """Return whether `key` is set."""
        return bool(self.get(key))

    def windows(self, layers: int, by_default: tuple[bool, ...]) -> tuple[int, ...]:
        """Return each layer's window in tokens, 0 for none.

        Layers are those that `layer_types` calls sliding, or where it is absent those of `by_default`.
        """
        types = self.get("layer_types")
        sliding = by_default if types is None else tuple(_is_sliding(kind) for kind in types)
        if len(sliding) < layers:
            raise ModelError(f"config.json: layer_types has {len(sliding)} entries for {layers} layers. Correct it.")
        if not any(sliding[:layers]):
            return (0,) * layers
        window = self.size("sliding_window")
        return tuple(window if slides else 0 for slides in sliding[:layers])


def _is_sliding(kind: Any) -> bool:
    known = {"sliding_attention": True, "full_attention": False}
    if kind not in known:
        raise ModelError(f"config.json: the layer type {kind!r} is not supported; known: {', '.join(known)}.")
    return known[kind]
