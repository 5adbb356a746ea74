"""What tells the hash chains of two requests apart besides their tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from octavo_native import root_key

if TYPE_CHECKING:
    from octavo.wire.frontend import Domain

__all__ = ["Base", "domain_root"]


@dataclass(frozen=True, slots=True)
class Base:
    """What all chains of one engine have in common: whatever else changes the KV of equal tokens."""

    model: str
    kv_dtype: str
    weight_version: str = "0"


def domain_root(base: Base, domain: Domain | None) -> bytes:
    """Return the root of the chains of one domain.

    Every part has a tag of its kind and its length before it (octavo_hash::root), so that an adapter and a salt of one
    name, or parts cut in other places, never give the same root. Without a domain the root is the engine's own.
    """
    fields = [("model", base.model), ("kv_dtype", base.kv_dtype), ("weight_version", base.weight_version)]
    if domain is not None:
        fields += [(tag, value) for tag, value in (("adapter", domain.adapter), ("salt", domain.salt)) if value]
        fields += [("media", value) for value in domain.media]
    return root_key([(tag, value.encode()) for tag, value in fields])
