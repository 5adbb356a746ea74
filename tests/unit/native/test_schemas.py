"""Schemas: which are enforced, what is accepted, and that the others are refused by name."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from octavo_native import GrammarError, accepts, check_schema

from tests.tools.schema_order import in_order

ORACLE = (
    Path(os.environ.get("OCTAVO_SHARED", Path(__file__).parents[4] / "shared")) / "oracles/schemas/schemas.jsonl.gz"
)


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def test_every_schema_of_the_oracle_is_enforced_or_refused() -> None:
    if not ORACLE.exists():
        pytest.skip(f"{ORACLE} is not there")
    refused: dict[str, str] = {}
    wrong: list[str] = []
    with gzip.open(ORACLE, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    valid = invalid = 0
    for row in rows:
        schema = row["schema"]
        try:
            check_schema(schema)
        except GrammarError as error:
            refused[row["id"]] = str(error)
            continue
        for test in row["tests"]:
            data = in_order(test["data"], schema, schema) if test["valid"] else test["data"]
            valid, invalid = valid + test["valid"], invalid + (not test["valid"])
            if accepts(schema, json.dumps(data, ensure_ascii=False)) != test["valid"]:
                wrong.append(f"{row['id']}: {json.dumps(data)[:200]} is {'' if test['valid'] else 'in'}valid")
    print(f"schemas: {len(rows) - len(refused)} of {len(rows)} enforced; {valid} valid, {invalid} invalid instances")
    assert not wrong
    assert len(rows) - len(refused) >= 0.85 * len(rows), refused
    assert all(reason for reason in refused.values())


REFUSED = [
    (False, "no instance"),
    ({"type": "nonsense"}, "type: must be one of"),
    ({"type": "array", "items": [{"type": "string"}]}, "items: must be a schema"),
    ({"$ref": "#/nowhere"}, r"\$ref: #/nowhere names nothing"),
    ({"$ref": "http://example.com/other.json"}, "names nothing in the schema"),
    ({"enum": []}, "enum: must not be empty"),
    ({"type": "string", "pattern": "("}, "regex"),
    ({"type": "string", "pattern": "(?=a)b"}, "look"),
    ({"anyOf": []}, "anyOf: must be a list of at least one"),
    ({"type": "integer", "minimum": 3, "maximum": 1}, "minimum|3"),
    (obj(a={"type": "array", "uniqueItems": True}), "properties.a.uniqueItems: is supported where"),
    (obj(a={"contains": {"type": "string"}}), "properties.a.contains: is not supported"),
    (obj(a={"type": "string", "format": "iri"}), r'properties.a.format: "iri" is not supported'),
    ({"not": {"pattern": "a"}}, "not: is not supported"),
    ({"if": {"pattern": "a"}, "then": {"maxLength": 3}}, "if: is not supported"),
    ({"oneOf": [{"pattern": "a"}, {"pattern": "b"}]}, "oneOf: options 0 and 1 may overlap"),
    ({"unevaluatedProperties": False}, "unevaluatedProperties: is not supported"),
    ({"minProperties": 3}, "minProperties: above 1"),
    ({"multipleOf": 0}, "multipleOf: must be a number above 0"),
    ({"properties": []}, "properties: must be an object of schemas"),
    ({"required": True}, "required: must be a list of names"),
    ({"enum": [2**60]}, "enum: whole numbers beyond"),
    ({"$schema": "http://json-schema.org/draft-03/schema#"}, "draft-03"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "refers to itself"),
]


@pytest.mark.parametrize(("schema", "message"), REFUSED, ids=[json.dumps(schema)[:60] for schema, _ in REFUSED])
def test_what_cannot_be_enforced_is_named(schema: Any, message: str) -> None:
    with pytest.raises(GrammarError, match=message):
        check_schema(schema)


ACCEPTED: list[tuple[Any, list[str], list[str]]] = [
    (True, ["1", '"a"', '{"a": [null]}'], ["{", "nul"]),
    # SO05
    (
        obj(v={"type": "integer", "minimum": 0, "maximum": 20000000000}),
        ['{"v": 20000000000}', '{"v":0}'],
        ['{"v": 20000000001}', '{"v": -1}', '{"v": 1.5}', '{"v": 01}'],
    ),
    ({"type": "integer", "maximum": 2**63 - 1}, [str(2**62), "-5"], [str(2**63)]),
    ({"type": "integer", "exclusiveMinimum": -7, "exclusiveMaximum": -3}, ["-6", "-4"], ["-7", "-3", "0"]),
    # SO07
    (
        obj(o=obj(s={"type": "string", "pattern": "^[a-z]+$"}, t={"type": "string", "pattern": "\\S"})),
        ['{"o": {"s": "ab", "t": "a b"}}'],
        ['{"o": {"s": "aB", "t": "x"}}', '{"o": {"s": "ab", "t": "  "}}'],
    ),
    # SO16, but for "\/", which no grammar here writes
    (
        {"type": "string"},
        ['"a\\"b"', '"a\\nb"', '"\\\\"', '"\\u00e9"', '"\\ud83d\\ude00"', '"é🙂"'],
        ['"a\nb"', '"\t"', '"\\x"', '"\\u12"', '"a"b"'],
    ),
    # SO19
    (
        {"type": "array", "minItems": 5, "maxItems": 5, "items": obj(id={"type": "string", "maxLength": 3})},
        [json.dumps([{"id": "abc"}] * 5)],
        [json.dumps([{"id": "abc"}] * 4), json.dumps([{"id": "abc"}] * 6), json.dumps([{"id": "abcd"}] * 5)],
    ),
    ({"not": {"required": ["a", "b"]}, "type": "object"}, ['{"a": 1}', "{}"], ['{"a": 1, "b": 2}']),
    ({"not": {"enum": ["ab", "abc", 1]}}, ['"a"', '"abd"', "2", "0.5", "null"], ['"ab"', '"abc"', "1"]),
    (
        {"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"},
        ['{"a": 1}', '{"b": 1}'],
        ["{}", '{"a": 1, "b": 1}'],
    ),
    (
        {
            "type": "object",
            "properties": {"kind": {"enum": ["x", "y"]}, "n": {"type": "integer"}},
            "required": ["kind"],
            "if": {"properties": {"kind": {"const": "x"}}},
            "then": {"required": ["n"]},
            "additionalProperties": False,
        },
        ['{"kind": "x", "n": 1}', '{"kind": "y"}'],
        ['{"kind": "x"}'],
    ),
    ({"type": "object", "properties": {"a": {}, "b": {}}, "minProperties": 1}, ['{"b": 1}', '{"z": 1}'], ["{}"]),
    ({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True}, ["[]", "[2, 1]"], ["[1, 1]"]),
    ({"format": "date", "type": "string"}, ['"2024-02-29"'], ['"2023-02-29"', '"2024-2-1"', '"0000-01-01"']),
    ({"format": "ipv6", "type": "string"}, ['"::1"', '"1:2:3:4:5:6:7::"', '"::ffff:1.2.3.4"'], ['"1::2::3"', '":::"']),
    ({"format": "textarea", "type": "string"}, ['"anything"'], ["1"]),
    ({"propertyNames": {"pattern": "^a"}, "type": "object"}, ['{"ab": 1}'], ['{"b": 1}']),
    ({"dependentRequired": {"a": ["b"]}, "type": "object"}, ['{"a": 1, "b": 2}', '{"b": 1}'], ['{"a": 1}']),
    (
        {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 3, "exclusiveMinimum": True},
        ["4", '"a"'],
        ["3"],
    ),
    ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}}, ["[[], [[]]]"], ["[1]"]),
]


@pytest.mark.parametrize(("schema", "good", "bad"), ACCEPTED, ids=[json.dumps(row[0])[:60] for row in ACCEPTED])
def test_instances_are_told_from_others(schema: Any, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not accepts(schema, text)] == []
    assert [text for text in bad if accepts(schema, text)] == []


def test_white_space_is_bounded() -> None:
    """SO20: at most 64 characters of it at one place, none before or behind the value (SO13)."""
    schema = {"type": "object"}
    assert accepts(schema, "{" + "\n" * 64 + "}") and not accepts(schema, "{" + "\n" * 65 + "}")
    assert not accepts(schema, "{}\n") and not accepts(schema, " {}")


def test_a_schema_may_be_json_text() -> None:
    assert accepts('{"type": "null"}', "null")
    with pytest.raises(GrammarError, match="no JSON"):
        check_schema("{")
