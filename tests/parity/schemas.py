"""A random-weight model at temperature 1 under schemas: every completion that ended by stop must be an instance.

`python -m tests.parity.schemas` tries all supported schemas of the oracle and prints one line of counts.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import tempfile
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import octavo_native

from octavo.engine_core.cache.group import Flight
from octavo.engine_core.cache.layout import block_tokens_by_kind, build_cache, group_layers
from octavo.engine_core.core import Core
from octavo.engine_core.grammar.native import NativeGrammars
from octavo.engine_core.sched.budget import SchedLimits
from octavo.wire.frontend import AddRequest, Grammar, SamplingParams
from octavo.wire.worker import AllocateKv, Init, SamplePlan, StepResult
from octavo.workers.model_body import ModelBody
from tests.tiny import make_llama

__all__ = ["ORACLE", "Counts", "Model", "is_instance", "oracle", "try_schemas"]

ORACLE = (
    Path(os.environ.get("OCTAVO_SHARED", Path(__file__).parents[3] / "shared")) / "oracles/schemas/schemas.jsonl.gz"
)
_ROWS = 16
_CONTEXT = 512
_BLOCKS = 600


@dataclass
class Counts:
    """What came of a run."""

    refused: int = 0
    stopped: int = 0
    cut: int = 0  # by max_tokens
    failed: list[str] = field(default_factory=list)  # with an error, by schema
    invalid: list[str] = field(default_factory=list)  # that stopped and are no instances


def oracle() -> list[dict[str, Any]]:
    """Return the schemas of the oracle."""
    with gzip.open(ORACLE, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def is_instance(text: str, schema: Any) -> bool:
    """Tell whether a text is an instance, formats included."""
    kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    return bool(kind(schema, format_checker=kind.FORMAT_CHECKER).is_valid(json.loads(text)))


class Model:
    """A tiny random model behind a core, driven step by step in this process."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        make_llama(folder, seed=seed, initializer_range=0.02)
        self.renderer = octavo_native.Renderer(folder, 0)
        self._body = ModelBody()
        ready = self._body.init(
            Init(0, 1, "", str(folder), "float32", "cpu", "auto", 0, _CONTEXT, _ROWS, 256, threads=1)
        )
        self._width = ready.vocab_size
        groups = group_layers(ready.kv_specs, block_tokens_by_kind(16))
        cache = build_cache(groups, [_BLOCKS] * len(groups), Flight(1, 256, 1), None)
        grammars = NativeGrammars(str(folder), self._width)
        self._grammars = grammars
        self.core = Core(SchedLimits(_ROWS, 256, _CONTEXT, 1), cache, grammars)
        self._body.allocate(AllocateKv(tuple(group.alloc(_BLOCKS) for group in groups)))
        self._texts: dict[int, tuple[array[int], str | None]] = {}

    def add(self, number: int, fields: dict[str, Any], max_tokens: int) -> None:
        """Queue a completion. Raises RenderError if its constraint is refused."""
        body = {"prompt": "x", "max_tokens": max_tokens, "temperature": 1.0, "seed": number} | fields
        prepared = self.renderer.completion(json.dumps(body).encode(), _CONTEXT, self._width)
        assert prepared.grammar is not None
        grammar = Grammar(*prepared.grammar)
        sampling = msgspec.msgpack.decode(prepared.sampling(0), type=SamplingParams)
        message = AddRequest(number, 1, "r", prepared.prompt, b"", sampling, number, grammar=grammar)
        self.core.add(message, self._grammars.compile(grammar).start())
        self._texts[number] = (array("i"), None)

    def run(self) -> dict[int, tuple[str, str | None]]:
        """Serve all; return text and finish reason by number."""
        while (plan := self.core.sample_plan() or self.core.next_plan()) is not None:
            result = self._body.sample(plan) if isinstance(plan, SamplePlan) else self._body.step(plan)
            if result is not None:
                assert isinstance(result, StepResult)
                deltas = self.core.result(result)
                for delta in [*deltas, *self.core.take_failed()]:
                    tokens, _ = self._texts[delta.id]
                    tokens.frombytes(delta.tokens)
                    self._texts[delta.id] = (tokens, delta.finish and delta.finish.reason)
        done, self._texts = self._texts, {}
        return {number: (self.renderer.decode(tokens.tolist()), finish) for number, (tokens, finish) in done.items()}


def try_schemas(rows: list[dict[str, Any]], each: int, max_tokens: int) -> Counts:
    """Draw `each` completions under every schema."""
    counts = Counts()
    with tempfile.TemporaryDirectory() as folder:
        model = Model(Path(folder))
        for begin in range(0, len(rows), _ROWS):
            schemas: dict[int, dict[str, Any]] = {}
            for row in rows[begin : begin + _ROWS]:
                fields = {"structured_outputs": {"json": row["schema"], "disable_any_whitespace": True}}
                try:
                    for draw in range(each):
                        number = (begin + len(schemas)) * 100 + draw + 1
                        model.add(number, fields, max_tokens)
                        schemas[number] = row
                except octavo_native.RenderError:
                    counts.refused += 1
            for number, (text, finish) in model.run().items():
                _count(counts, schemas[number], text, finish)
    return counts


def _count(counts: Counts, row: dict[str, Any], text: str, finish: str | None) -> None:
    counts.stopped += finish == "stop"
    counts.cut += finish == "length"
    if finish not in ("stop", "length"):
        counts.failed.append(row["id"])
    if finish == "stop" and not is_instance(text, row["schema"]):
        counts.invalid.append(f"{row['id']}: {text}")


def main() -> int:
    """Try all schemas."""
    counts = try_schemas(oracle(), 3, 400)
    print(
        f"schemas: {counts.refused} refused, {counts.stopped} completions ended by stop, {counts.cut} were cut,"
        f" {len(counts.failed)} failed, {len(counts.invalid)} invalid"
    )
    for line in [*counts.failed, *counts.invalid]:
        print(line)
    return 1 if counts.failed or counts.invalid else 0


if __name__ == "__main__":
    sys.exit(main())
