"""The command: conversations of three lengths, one client and eight, one that grows; bench/results/render.json."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import octavo_native
from transformers import PreTrainedTokenizerFast

from bench.compare.machine import describe

_ROOT = Path(__file__).resolve().parents[2]
_SHARED = Path(os.environ.get("OCTAVO_SHARED", _ROOT.parent / "shared"))
_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_LENGTHS = (200, 8_000, 72_000)
_CLIENTS = (1, 8)
#: Prose, code, numbers and other scripts.
_WORDS = [
    *("the", "of", "request", "engine", "token", "stream", "cache", "worker", "answer", "when", "under", "returns"),
    *("before", "after", "each", "block", "memory", "scheduler", "which", "batch", "über", "naïve", "東京", "données"),
    *("function(x)", "return", "None;", "3.14159", "42", '{"key":', "[1,", "2]}", "\n\n"),
]

Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Row:
    """One figure: conversations a second, and CPU milliseconds of one."""

    engine: str
    tokens: int
    clients: int
    per_second: float
    cpu_ms: float


def _folder(model: Path | None, scratch: Path) -> Path:
    """Return the model's folder: the one given, or the shared vocabulary of Qwen2 with a ChatML template."""
    if model is not None:
        return model
    source = _SHARED / "oracles" / "tokenizers" / "qwen2"
    if not source.is_dir():
        raise SystemExit(f"bench.render: {source} is absent: set OCTAVO_SHARED, or give a folder with --model")
    (scratch / "tokenizer.json").write_bytes(gzip.decompress((source / "tokenizer.json.gz").read_bytes()))
    (scratch / "tokenizer_config.json").write_bytes((source / "tokenizer_config.json").read_bytes())
    (scratch / "chat_template.jinja").write_text(_TEMPLATE, encoding="utf-8")
    return scratch


def _conversation(tokens: int, seed: int) -> Messages:
    """Return turns of about so many tokens; another seed gives another text."""
    draw = random.Random(seed)
    turns = max(1, tokens // 180)
    said = (" ".join(draw.choices(_WORDS, k=80)) for _ in range(turns))
    return [{"role": "assistant" if index % 2 else "user", "content": text} for index, text in enumerate(said)]


class _Engines:
    """The two ways from messages to ids, and tokenizing alone."""

    def __init__(self, folder: Path) -> None:
        template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
        self._reference = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
        self._reference.chat_template = template
        self._renderer = octavo_native.Renderer(folder)

    def transformers(self, messages: Messages) -> list[int]:
        """Render and encode with Transformers."""
        text = self._reference.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids: list[int] = self._reference(text, add_special_tokens=False)["input_ids"]
        return ids

    def octavo(self, messages: Messages) -> list[int]:
        """Render and encode with octavo_native."""
        return self._renderer.encode(self.text(messages), False)

    def text(self, messages: Messages) -> str:
        """Render alone."""
        return self._renderer.chat_text(json.dumps({"messages": messages}).encode())

    def encode(self, text: str) -> list[int]:
        """Tokenize alone."""
        return self._renderer.encode(text, False)


def _measure(work: Callable[[Any], object], inputs: Sequence[Any], clients: int) -> tuple[float, float]:
    """Return inputs a second and CPU milliseconds of one."""
    with ThreadPoolExecutor(clients) as pool:
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in pool.map(work, inputs):
            pass
        return len(inputs) / (time.perf_counter() - wall), (time.process_time() - cpu) * 1000 / len(inputs)


def _lengths(engines: _Engines, scale: int) -> list[Row]:
    """Measure conversations that nobody has seen before: no cache helps."""
    rows, seed = [], 0
    for tokens in _LENGTHS:
        count = max(8, scale * 20_000 // tokens)
        for clients in _CLIENTS:
            for name, work in (("transformers", engines.transformers), ("octavo", engines.octavo)):
                seed += count
                inputs = [_conversation(tokens, seed + index) for index in range(count)]
                rows.append(Row(name, tokens, clients, *_measure(work, inputs, clients)))
            texts = [engines.text(_conversation(tokens, -seed - index - 1)) for index in range(count)]
            rows.append(Row("octavo, tokenizing alone", tokens, clients, *_measure(engines.encode, texts, clients)))
    return rows


def _growing(engines: _Engines, turns: int) -> dict[str, float]:
    """Let a conversation grow turn by turn; return milliseconds a turn at its beginning and at its end."""
    messages, spent = [], []
    for turn in _conversation(turns * 180, 7):
        messages.append(turn)
        began = time.process_time()
        engines.octavo(messages)
        spent.append((time.process_time() - began) * 1000)
    part = max(1, turns // 8)
    return {"turns": turns, "first_ms": sum(spent[:part]) / part, "last_ms": sum(spent[-part:]) / part}


def _table(rows: Sequence[Row]) -> str:
    lines = [f"{'tokens':>7} {'clients':>7}  {'what':<26} {'a second':>10} {'CPU ms':>9} {'times':>6}"]
    base: dict[tuple[int, int], float] = {}
    for row in rows:
        if row.engine == "transformers":
            base[row.tokens, row.clients] = row.per_second
        times = row.per_second / base[row.tokens, row.clients]
        head = f"{row.tokens:>7} {row.clients:>7}  {row.engine:<26}"
        lines.append(f"{head} {row.per_second:>10.1f} {row.cpu_ms:>9.2f} {times:>6.1f}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bench; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.render", description=__doc__)
    parser.add_argument("--model", type=Path, help="a folder with tokenizer.json and chat_template.jinja (Qwen2's)")
    parser.add_argument("--output", type=Path, default=_ROOT / "bench" / "results" / "render.json")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; the figures mean nothing")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        engines = _Engines(_folder(args.model, Path(scratch)))
        probe = _conversation(2_000, 1)
        if engines.octavo(probe) != engines.transformers(probe):
            raise SystemExit("bench.render: the two give different ids")
        rows = _lengths(engines, 1 if args.quick else 10)
        growing = _growing(engines, 20 if args.quick else 400)
    print(_table(rows))
    print(
        f"growing over {growing['turns']} turns: {growing['first_ms']:.2f} ms a turn, then {growing['last_ms']:.2f} ms"
    )
    found = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": describe(),
        "octavo_native": octavo_native.__version__,
        "rows": [asdict(row) for row in rows],
        "growing": growing,
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
