"""Instances with their keys in a schema's order: properties as the schema names them, then all others."""

from __future__ import annotations

from typing import Any

__all__ = ["in_order"]

_COMBINED = ("allOf", "anyOf", "oneOf")
_DEEP = 12


def in_order(value: Any, schema: Any, root: Any) -> Any:
    """Return `value` with the keys of its objects in the order in which `schema` names them."""
    return _ordered(value, [schema], root)


def _ordered(value: Any, schemas: list[Any], root: Any) -> Any:
    parts = [part for schema in schemas for part in _parts(schema, root, 0)]
    if isinstance(value, list):
        prefixes = [
            part.get("prefixItems", part["items"] if isinstance(part.get("items"), list) else []) for part in parts
        ]
        rest = [part[key] for part in parts for key in ("items", "additionalItems") if isinstance(part.get(key), dict)]
        return [_ordered(item, [p[i] for p in prefixes if i < len(p)] + rest, root) for i, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    names: dict[str, None] = {}
    for part in parts:
        names |= dict.fromkeys(part.get("properties", {}))
    for part in parts:
        names |= dict.fromkeys(part.get("required", []))
    keys = [name for name in names if name in value] + [name for name in value if name not in names]
    return {key: _ordered(value[key], _of_key(key, parts), root) for key in keys}


def _of_key(key: str, parts: list[dict[str, Any]]) -> list[Any]:
    named = [part["properties"][key] for part in parts if key in part.get("properties", {})]
    maps = [part.get("patternProperties", {}) for part in parts]
    others = [schema for found in maps for schema in found.values()]
    return named + others + [part["additionalProperties"] for part in parts if "additionalProperties" in part]


def _parts(schema: Any, root: Any, depth: int) -> list[dict[str, Any]]:
    """Return a schema and what it refers to or combines, in the order in which they name properties."""
    if not isinstance(schema, dict) or depth > _DEEP:
        return []
    parts = [schema]
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        target: Any = root
        for step in reference.lstrip("#").split("/")[1:]:
            target = target[step.replace("~1", "/").replace("~0", "~")]
        parts += _parts(target, root, depth + 1)
    for keyword in _COMBINED:
        for inner in schema.get(keyword, []):
            parts += _parts(inner, root, depth + 1)
    for keyword in ("then", "else"):
        parts += _parts(schema.get(keyword), root, depth + 1)
    for inner in (schema.get("dependencies") or {}).values():
        parts += _parts(inner, root, depth + 1)
    return parts
