"""Seeded requests that are wrong in some way, for all operations of an OpenAPI document."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Attempt", "Malformed"]

Json = Any

#: Whatever comes there ends the server.
_ENDS = ("/shutdown",)

#: Values of wrong types, or at the ends of ranges.
_VALUES: tuple[Json, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    1e308,
    -1e308,
    2**31,
    2**63,
    -(2**63) - 1,
    2**64,
    10**400,
    "",
    "x",
    "\x00",
    "\ud800",
    "é" * 300,
    "%s%n{{}}{% raw %}",
    "x" * 5000,
    [],
    [None],
    [[]],
    [0] * 3000,
    ["a"] * 200,
    {},
    {"": {}},
    {"type": "nonsense"},
    {"type": None, "function": []},
    {"type": "json_schema", "json_schema": {"schema": {"$ref": "#"}}},
    {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "array", "minItems": 10**9}}},
    {"regex": "(a{1000}){1000}"},
    {"grammar": 'root ::= root root | "'},
    [{"role": "user"}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}],
    [{"role": "tool", "content": None, "tool_calls": [[]]}],
    [{"type": "function", "function": {"name": "f", "parameters": {"$ref": "#/x"}}}],
)
_TYPES = (
    "",
    "text/plain",
    "application/json; charset=utf-16",
    "multipart/form-data; boundary=x",
    "json",
    "a" * 500,
    "\xff",
)
_METHODS = ("GET", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "CONNECT", "BREW", "post", "X" * 300)
_NUMBERS = (
    "1e999999",
    "-1e999999",
    "1e-999999",
    "9" * 1000,
    "-0",
    "0." + "1" * 500,
    "NaN",
    "Infinity",
    "-Infinity",
    "0x10",
)
_BROKEN = ("", "{", "}", "null", "[]", '"text"', "{'a': 1}", '{"a": 1,}', '{"a" 1}', '{"a": 1} {"b": 2}', '{"a": tru}')
_QUERIES = (
    "mode=never",
    "clear_cache=maybe",
    "level=9",
    "tags=all",
    "limit=0",
    "order=up",
    "x=1",
    "=",
    "&&",
    "%",
    "%ff=%00",
)
_HEADERS = (
    b"x-request-id: " + b"r" * 5000,
    b"x-request-id: a\tb",
    b"authorization: Basic !!!",
    b"authorization: Bearer \xff\xfe",
    b"x-data-parallel-rank: 7",
    b"x-vllm-priority: 9223372036854775808",
    b"x-session-id: " + b"s" * 300,
    b"accept: nothing/at-all",
    b"expect: 999-nonsense",
    b"content-encoding: br",
    b"connection: upgrade\r\nupgrade: h2c",
    b"no-colon",
    b"spaced name: x",
    b"x-null: a\x00b",
    b" folded: x",
    b"x-huge: " + b"h" * 70_000,
    b"content-length: -1",
    b"content-length: 1\r\ncontent-length: 2",
    b"content-length: 99999999999999999999",
    b"transfer-encoding: chunked, gzip",
    b"transfer-encoding: chunked\r\ncontent-length: 4",
    b"host: a\r\nhost: b",
    b"\r\n".join(b"x-%d: y" % i for i in range(300)),
)


@dataclass(frozen=True)
class Attempt:
    """Bytes to send. `silent`: the server may close the connection without a word."""

    kind: str
    method: str
    path: str
    raw: bytes
    silent: bool = False


@dataclass(frozen=True)
class _Operation:
    method: str
    path: str
    body: Json
    fields: tuple[str, ...]


class Malformed:
    """Makes attempts; each is a function of the document, the seed and its number."""

    def __init__(self, document: dict[str, Any], seed: int) -> None:
        self._seed = seed
        self._components = document["components"]["schemas"]
        self._operations = [
            self._operation(method, path, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if path not in _ENDS
        ]
        self._kinds: tuple[Callable[[random.Random, _Operation], Attempt], ...] = (
            *(self._wrong_type,) * 4,
            self._broken_json,
            self._number,
            self._deep,
            self._not_utf8,
            self._content_type,
            self._cut,
            self._twice,
            self._unknown_fields,
            self._wrong_method,
            self._header,
            self._target,
            self._start_line,
            self._chunks,
        )

    def attempt(self, number: int) -> Attempt:
        """Return an attempt; all operations come in turn, and all kinds come for each."""
        random_ = random.Random(f"{self._seed}:{number}")
        round_, place = divmod(number, len(self._operations))
        operation = self._operations[place]
        make = self._kinds[(round_ + place) % len(self._kinds)]
        return make(random_, operation)

    def _operation(self, method: str, path: str, operation: dict[str, Any]) -> _Operation:
        body, fields = None, ()
        if "requestBody" in operation:
            content = operation["requestBody"]["content"]["application/json"]
            fields = tuple(sorted(self._properties(content["schema"])))
            body = content.get("example", {name: {} for name in fields})
        return _Operation(method.upper(), path.replace("{id}", "resp_x").replace("{name}", "tiny"), body, fields)

    def _properties(self, schema: dict[str, Any]) -> set[str]:
        if "$ref" in schema:
            schema = self._components[schema["$ref"].rsplit("/", 1)[1]]
        found = set(schema.get("properties", ()))
        for part in (*schema.get("anyOf", ()), *schema.get("allOf", ())):
            found |= self._properties(part)
        return found

    def _wrong_type(self, random_: random.Random, operation: _Operation) -> Attempt:
        body = dict(operation.body or {"model": "tiny"})
        for _ in range(random_.choice((1, 1, 2, 3))):
            names = operation.fields or ("model", "stream")
            body[random_.choice(names)] = _vary(random_, random_.choice(_VALUES))
        return _send("wrong type", operation, json.dumps(body).encode())

    def _broken_json(self, random_: random.Random, operation: _Operation) -> Attempt:
        good = json.dumps(operation.body or {"a": 1})
        cut = good[: random_.randrange(len(good))]
        text = random_.choice((*_BROKEN, cut, "\ufeff" + good, good + ",", good.replace(":", "::"), "// c\n" + good))
        return _send("broken JSON", operation, text.encode())

    def _number(self, random_: random.Random, operation: _Operation) -> Attempt:
        name = random_.choice(operation.fields or ("a",))
        good = json.dumps({**(operation.body or {}), name: "@"})
        return _send("number", operation, good.replace('"@"', random_.choice(_NUMBERS)).encode())

    def _deep(self, random_: random.Random, operation: _Operation) -> Attempt:
        depth = random_.choice((50, 127, 129, 5000, 100_000))
        opening, closing = random_.choice((("[", "]"), ('{"a":', "}")))
        text = opening * depth + "1" + closing * random_.choice((depth, depth, 0))
        name = random_.choice(operation.fields or ("a",))
        good = json.dumps({**(operation.body or {}), name: "@"})
        return _send("deep", operation, good.replace('"@"', text).encode())

    def _not_utf8(self, random_: random.Random, operation: _Operation) -> Attempt:
        good = bytearray(json.dumps(operation.body or {"a": "b"}).encode())
        for _ in range(random_.randint(1, 5)):
            good[random_.randrange(1, len(good))] = random_.choice((0x80, 0xC0, 0xED, 0xFF, 0x00, 0x1F))
        return _send("not UTF-8", operation, bytes(good))

    def _content_type(self, random_: random.Random, operation: _Operation) -> Attempt:
        body = json.dumps(operation.body or {}).encode()
        kind = random_.choice(_TYPES)
        header = b"content-type: " + kind.encode("latin-1") if kind else b"x-none: y"
        return _send("content type", operation, body, header)

    def _cut(self, random_: random.Random, operation: _Operation) -> Attempt:
        body = json.dumps(operation.body or {"a": 1}).encode()
        raw = _request(operation, body[: random_.randrange(len(body))], b"content-type: application/json", len(body))
        return Attempt("cut", operation.method, operation.path, raw, silent=True)

    def _twice(self, random_: random.Random, operation: _Operation) -> Attempt:
        good = json.dumps(operation.body or {"a": 1})
        name = random_.choice(operation.fields or ("a",))
        pairs = ", ".join(f'"{name}": {json.dumps(random_.choice(_VALUES))}' for _ in range(2))
        return _send("twice", operation, (good[:-1] + ", " + pairs + "}").encode())

    def _unknown_fields(self, random_: random.Random, operation: _Operation) -> Attempt:
        letters = string.ascii_letters + '\r\n:"\\é\x00'
        names = [
            "".join(random_.choices(letters, k=random_.choice((0, 1, 9, 300)))) for _ in range(random_.choice((1, 40)))
        ]
        body = {**(operation.body or {}), **dict.fromkeys(names, 1)}
        return _send("unknown fields", operation, json.dumps(body).encode())

    def _wrong_method(self, random_: random.Random, operation: _Operation) -> Attempt:
        method = random_.choice([one for one in _METHODS if one != operation.method])
        wrong = _Operation(method, operation.path, operation.body, operation.fields)
        return _send("method", wrong, json.dumps(operation.body or {}).encode())

    def _header(self, random_: random.Random, operation: _Operation) -> Attempt:
        body = json.dumps(operation.body or {}).encode()
        raw = _request(operation, body, b"content-type: application/json\r\n" + random_.choice(_HEADERS), len(body))
        return Attempt("header", operation.method, operation.path, raw, silent=True)

    def _target(self, random_: random.Random, operation: _Operation) -> Attempt:
        query = "&".join(random_.choices(_QUERIES, k=random_.choice((1, 1, 3, 500))))
        path = operation.path.replace("resp_x", random_.choice(("%ff%fe", "%00", "..%2f..", "x" * 9000, "'--")))
        path = path.replace("/models/tiny", "/models/" + random_.choice(("%ff", "%2e%2e", "a/b/c", "é")))
        target = random_.choice((f"{path}?{query}", f"{path}/", f"//{path}", f"{path}%00", f"http://x{path}?{query}"))
        wrong = _Operation(operation.method, target, operation.body, operation.fields)
        return _send("target", wrong, json.dumps(operation.body or {}).encode(), silent=True)

    def _start_line(self, random_: random.Random, operation: _Operation) -> Attempt:
        good = f"{operation.method} {operation.path}"
        lines = (
            good.encode(),
            f"{good} HTTP/3.0".encode(),
            f"{good} HTTP/0.9".encode(),
            f"{good} HTTP/1.1 extra".encode(),
            operation.method.encode(),
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            random_.randbytes(40).replace(b"\n", b""),
            b"PRI * HTTP/2.0\r\n\r\nSM",
            f"{operation.method} * HTTP/1.1".encode(),
            b"",
        )
        raw = random_.choice(lines) + b"\r\nhost: x\r\nconnection: close\r\n\r\n"
        return Attempt("start line", operation.method, operation.path, raw, silent=True)

    def _chunks(self, random_: random.Random, operation: _Operation) -> Attempt:
        head = _request(operation, b"", b"content-type: application/json\r\ntransfer-encoding: chunked", None)
        good = json.dumps(operation.body or {}).encode()
        whole = b"%x\r\n%s\r\n" % (len(good), good)
        bodies = (
            b"zz\r\nabc\r\n0\r\n\r\n",
            b"ffffffffffffffffff\r\n",
            b"5\r\nab",
            whole,
            whole + b"-1\r\n",
            b"\r\n\r\n",
            b"1\n{\n0\n\n",
        )
        return Attempt("chunks", operation.method, operation.path, head + random_.choice(bodies), silent=True)


def _vary(random_: random.Random, value: Json) -> Json:
    wrap: tuple[Callable[[Json], Json], ...] = (
        lambda one: one,
        lambda one: one,
        lambda one: [one],
        lambda one: [one, one],
        lambda one: {"a": one},
        lambda one: {"type": one, "name": one},
        lambda one: [{"role": one, "content": one}],
        lambda one: [{"type": "text", "text": one}],
    )
    return random_.choice(wrap)(value)


def _send(
    kind: str,
    operation: _Operation,
    body: bytes,
    header: bytes = b"content-type: application/json",
    silent: bool = False,
) -> Attempt:
    raw = _request(operation, body, header, len(body))
    return Attempt(kind, operation.method, operation.path, raw, silent)


def _request(operation: _Operation, body: bytes, headers: bytes, length: int | None) -> bytes:
    lines = [f"{operation.method} {operation.path} HTTP/1.1".encode(), b"host: x", b"connection: close", headers]
    if length is not None:
        lines.append(b"content-length: %d" % length)
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
