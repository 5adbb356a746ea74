"""Golden byte vectors of the wire between frontend and engine core.

Run `python -m tests.wire.make_golden` from the root to write golden.json anew. It only ever grows: a vector whose bytes
change means that the wire broke. Rust checks the same file against values of its own (rust_frontend/wire/tests).
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import msgspec

from octavo.wire import frontend as wire
from octavo.wire.codec import CORE, FRONTEND, HEADER, pack_tokens

__all__ = ["CASES", "GOLDEN", "Case", "vectors"]

GOLDEN = Path(__file__).with_name("golden.json")

MAX = 2**64 - 1
ALL_SAMPLING = wire.SamplingParams(MAX, 4096, 0.25, 0.9, 40, (2, 128_000, 2**31 - 1))
REPEAT = wire.RepetitionDetection(32, 2, 4)
THINK = wire.ThinkingBudget(0, pack_tokens([7]), pack_tokens([8, 9]), pack_tokens([9]))
EXTRAS = wire.SamplingExtras(
    0.5, -2.0, 2.0, 1.25, 5, pack_tokens([1, 2]), struct.pack("<2f", -100, 0.5), pack_tokens([3]),
    (pack_tokens([4, 5]), pack_tokens([6])), -1, 3, pack_tokens([10, 11]), REPEAT, THINK, 8,
)  # fmt: skip
LOGPROBS = wire.Logprobs(2, pack_tokens([1, 5, 2, 6]), struct.pack("<4f", -0.5, -1.5, 0, -4.25), pack_tokens([1, 70]))
POOLING = wire.Pooling("token_embed", False, 256, 7)
EMBEDS = wire.Embeds(2, "bfloat16", bytes(range(250, 256)) + b"\x00\x80")
POOLED = wire.Pooled(2, struct.pack("<4f", 0.5, -1.5, 0, 4.25))
INFO = wire.EngineInfo("modèle/ü-7B 🐙", 131_072, 128_256, 70_000, 16, 256, 2, "bfloat16", 8123, False)
UNUSABLE = msgspec.structs.replace(INFO, model_state=wire.ModelState("step-7", "unusable", "für später"))
KEYED = msgspec.structs.replace(UNUSABLE, cache_model="/modèle/ü")
DETAIL = wire.StepStats(
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    wire.Histogram((0.001, 0.5), (1, 0, 2**40), 2.25),
    wire.Histogram((), (0,), 0.0),
)


class Case(msgspec.Struct, frozen=True):
    """One message. `required` is the number of items that an old peer sends at least, the tag included."""

    name: str
    side: str  # "header", "frontend", "core"
    value: Any
    required: int


def _tokens(*ids: int) -> bytes:
    return pack_tokens(ids)


def _sampling_cases() -> list[Case]:
    front, core = "frontend", "core"
    return [
        Case(
            "AddRequest/extras",
            front,
            wire.AddRequest(2, 1, "x", _tokens(1), b"", wire.SamplingParams(3, 4, extras=EXTRAS), 5),
            8,
        ),
        Case(
            "AddRequest/no extras",
            front,
            wire.AddRequest(2, 1, "x", _tokens(1), b"", wire.SamplingParams(3, 4, extras=wire.SamplingExtras()), 5),
            8,
        ),
        Case(
            "AddRequest/pooling",
            front,
            wire.AddRequest(2, 1, "x", _tokens(1), b"", wire.SamplingParams(3, 4), 5, pooling=POOLING),
            8,
        ),
        Case(
            "AddRequest/embeds",
            front,
            wire.AddRequest(2, 1, "x", _tokens(0, 0), b"", wire.SamplingParams(3, 4), 5, embeds=EMBEDS),
            8,
        ),
        Case("Deltas/pooled", core, wire.Deltas(1, (wire.Delta(1, 1, 0, b"", pooled=POOLED),)), 3),
        Case(
            "Deltas/logprobs",
            core,
            wire.Deltas(1, (wire.Delta(1, 1, 0, _tokens(1, 2), None, 0, LOGPROBS, LOGPROBS),)),
            3,
        ),
    ]


def _cases() -> list[Case]:
    header, front, core = "header", "frontend", "core"
    finish = wire.Finish("stop", 2, "ünïcode")
    delta = wire.Delta(MAX, 3, 70_000, _tokens(1, -1, 2**31 - 1, -(2**31)), finish, 4096, queued_us=2**40)
    domain = wire.Domain("sälz", "adapter", ("image", "ä"))
    return [
        Case("Header/hello", header, wire.Header(1, 0, 0, 0, 65_536), 5),
        Case("Header/large", header, wire.Header(MAX, MAX - 1, 2**32, 2**31, 2**63, 300), 5),
        Case("Hello/defaults", core, wire.Hello(1, "0.1.0", "engine", 0, 4242), 6),
        Case("Hello/all", core, wire.Hello(2, "10.20.30", "engine", 65_535, 4_194_304, bytes(range(256))), 6),
        Case("Welcome/all", front, wire.Welcome(1, "0.1.0"), 3),
        Case("Refuse/unicode", front, wire.Refuse("Versionen: 0.1.0 ≠ 0.2.0 – 更新 🦀"), 2),
        Case("Refuse/empty", front, wire.Refuse(""), 2),
        Case("Ack/frontend", front, wire.Ack(127), 2),
        Case("Ack/core", core, wire.Ack(MAX), 2),
        Case("Goodbye/all", core, wire.Goodbye("shutdown"), 2),
        Case("AddRequest/defaults", front, wire.AddRequest(1, 1, "", b"", b"", wire.SamplingParams(0, 16), 0), 8),
        Case(
            "AddRequest/all",
            front,
            wire.AddRequest(
                MAX,
                7,
                "chatcmpl-é" * 8,
                _tokens(*range(300)),
                _tokens(5),
                ALL_SAMPLING,
                1_764_500_000_000_000,
                -5,
                wire.Grammar("regex", "[a-zé]+"),
                domain,
            ),
            8,
        ),
        *_sampling_cases(),
        Case("AbortRequests/empty", front, wire.AbortRequests((), "client"), 3),
        Case("AbortRequests/many", front, wire.AbortRequests((*range(120, 140), 256, 65_536, 2**32, MAX), "stop"), 3),
        Case("Control/defaults", front, wire.Control(9, "shutdown"), 3),
        Case("Control/all", front, wire.Control(10, "shutdown", {"grace": "5", "grund": "für später"}), 3),
        Case("ControlDone/defaults", core, wire.ControlDone(9), 2),
        Case("ControlDone/all", core, wire.ControlDone(10, "no", {"a": "", "b": "x" * 40}), 2),
        Case("ControlDone/refused", core, wire.ControlDone(11, "not paused", {}, "conflict", "mode"), 2),
        Case("Deltas/empty", core, wire.Deltas(0, ()), 3),
        Case("Deltas/defaults", core, wire.Deltas(1, (wire.Delta(1, 1, 0, b""),)), 3),
        Case("Deltas/all", core, wire.Deltas(2**40, (delta, wire.Delta(2, 1, 5, _tokens(7)))), 3),
        Case("RequestRejected/defaults", core, wire.RequestRejected(3, 1, "invalid", "no"), 5),
        Case("RequestRejected/all", core, wire.RequestRejected(3, 1, "too_long", "9 > 8", "prompt"), 5),
        Case("EngineReady/all", core, wire.EngineReady(INFO), 2),
        Case("EngineReady/state", core, wire.EngineReady(UNUSABLE), 2),
        Case("EngineReady/keys", core, wire.EngineReady(KEYED), 2),
        Case("EngineFault/all", core, wire.EngineFault("worker_died", "signal 9", True), 4),
        Case("Stats/zero", core, wire.Stats(*[0] * 11), 12),
        Case("Stats/large", core, wire.Stats(*[10**n for n in range(11)]), 12),
        Case("Stats/detail", core, wire.Stats(*[1] * 11, DETAIL), 12),
    ]


CASES = _cases()
CODECS: dict[str, Any] = {"header": HEADER, "frontend": FRONTEND, "core": CORE}


def vectors() -> list[dict[str, str]]:
    """Return the vectors: each case, cut to what an old peer sends (`short`), and with items of a later version."""
    rows: list[dict[str, str]] = []
    for case in CASES:
        data = CODECS[case.side].encode(case.value)
        items = msgspec.msgpack.decode(data)
        rows.append({"name": case.name, "side": case.side, "hex": data.hex()})
        later = msgspec.msgpack.encode([*items, {"new": [1, [2.5, None]]}, b"\xff", -129, True, "später"])
        rows.append({"name": f"{case.name}/longer", "side": case.side, "hex": later.hex(), "equals": case.name})
        if case.name.endswith(("/defaults", "/hello")) and len(items) > case.required:
            short = msgspec.msgpack.encode(items[: case.required])
            rows.append({"name": f"{case.name}/shorter", "side": case.side, "hex": short.hex(), "equals": case.name})
    return rows


def main() -> None:
    """Write golden.json."""
    lines = ",\n".join(f"  {json.dumps(row)}" for row in vectors())
    GOLDEN.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
