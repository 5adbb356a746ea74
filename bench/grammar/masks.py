"""Mask time per token: what structured output costs an engine core.

`python -m bench.grammar.masks [--out bench/results/grammar.json]`: for each grammar, instances are written token by
token over a real vocabulary (a GGUF or folder given by --model; default $OCTAVO_SMOLLM2) and each mask is timed: by the
clock, and by the CPU time of the process, which others that run beside it change little.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import octavo_native

from octavo.modelfiles import export_tokenizer, resolve

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "email": {"type": "string", "format": "email"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 8},
        "address": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
            "required": ["city", "zip"],
        },
    },
    "required": ["name", "age", "email", "tags", "address"],
    "additionalProperties": False,
}
SAMPLE = {
    "name": "Ada Lovelace",
    "age": 36,
    "email": "ada@example.org",
    "tags": ["mathematics", "engines, analytical", "poetry"],
    "address": {"city": "London", "zip": "10115"},
}
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("json_object", {"json_object": True}, json.dumps(SAMPLE)),
    ("json_schema", {"json": PERSON}, json.dumps(SAMPLE)),
    ("regex", {"regex": "([A-Z][a-z]+ ){3,20}[0-9]{4}"}, "Some Words Of Any Title From 1843"),
    ("choice", {"choice": ["positive", "negative", "neutral"]}, "neutral"),
    (
        "ebnf",
        {"grammar": 'root ::= term (" + " term)*\nterm ::= [0-9]+ | "(" root ")"'},
        "1 + (22 + 333) + ((4) + 5) + 6789",
    ),
]


def quantile(values: list[float], share: float) -> float:
    """Return the value below which `share` of the values are."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(
    renderer: octavo_native.Renderer, vocabulary: octavo_native.Vocabulary, width: int, rounds: int
) -> list[Any]:
    """Time each case; microseconds."""
    rows = []
    for name, fields, text in CASES:
        body = {"prompt": "x", "structured_outputs": fields}
        grammar = renderer.completion(json.dumps(body).encode(), 1000, width).grammar
        assert grammar is not None
        began = time.perf_counter()
        compiled = vocabulary.compile(*grammar)
        compile_us = (time.perf_counter() - began) * 1e6
        masks: list[float] = []
        work: list[float] = []
        accepts: list[float] = []
        for _ in range(rounds):
            matcher = compiled.matcher()
            for token in renderer.encode(text, False):
                used = time.process_time_ns()
                begin = time.perf_counter()
                octavo_native.fill_masks([matcher], width)
                middle = time.perf_counter()
                work.append((time.process_time_ns() - used) / 1e3)
                masks.append((middle - begin) * 1e6)
                begin = time.perf_counter()
                matcher.accept(token)
                accepts.append((time.perf_counter() - begin) * 1e6)
        rows.append(
            {
                "grammar": name,
                "tokens": len(masks),
                "compile_us": round(compile_us),
                "mask_p50_us": round(quantile(masks, 0.5), 1),
                "mask_p99_us": round(quantile(masks, 0.99), 1),
                "mask_mean_us": round(statistics.mean(masks), 1),
                "mask_cpu_p50_us": round(quantile(work, 0.5), 1),
                "mask_cpu_p99_us": round(quantile(work, 0.99), 1),
                "accept_p50_us": round(quantile(accepts, 0.5), 1),
            }
        )
    return rows


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=os.environ.get("OCTAVO_SMOLLM2"))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--note", default="", help="what a reader must know: the build, what else ran")
    args = parser.parse_args()
    if not args.model:
        parser.error("give --model, a folder or a .gguf file")
    files = resolve(args.model, "dummy")
    with tempfile.TemporaryDirectory() as folder:
        export_tokenizer(files, Path(folder))
        renderer = octavo_native.Renderer(folder, 0)
        began = time.perf_counter()
        vocabulary = octavo_native.Vocabulary(folder, files.vocab_size)
        vocabulary_ms = (time.perf_counter() - began) * 1000
        rows = measure(renderer, vocabulary, files.vocab_size, args.rounds)
    print(f"vocabulary of {files.vocab_size} tokens read in {vocabulary_ms:.0f} ms")
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))
    if args.out:
        head: dict[str, Any] = {"machine": platform.machine(), "cpus": os.cpu_count(), "note": args.note}
        head["vocab_size"] = files.vocab_size
        args.out.write_text(
            json.dumps(head | {"vocabulary_ms": round(vocabulary_ms), "grammars": rows}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
