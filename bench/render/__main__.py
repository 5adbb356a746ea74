"""The command: conversations of three lengths, one client and eight, one that grows; bench/results/render.json."""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import octavo_native
import tokenizers
import transformers

from bench.compare.machine import describe
from bench.render.conversations import Conversations
from bench.render.cost import Cost, measure
from bench.render.engines import Engines
from bench.render.growing import SHARED, Family, Part, by_template, grow
from bench.render.start import find, ready

__all__ = ["main"]

_ROOT = Path(__file__).resolve().parents[2]
_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_LENGTHS = (200, 8_000, 72_000)
_CLIENTS = (1, 8)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: the median over rounds."""

    what: str
    tokens: int  # asked for
    clients: int
    measured_tokens: int  # of a conversation, on average
    per_second: float  # conversations
    spread: float  # (fastest - slowest) / median
    times: float  # conversations a second over those of Transformers in the same round
    cpu_ms: float  # of a conversation, all threads
    cpu_times: float  # CPU time of Transformers in the same round over this


def _folder(model: Path | None, scratch: Path) -> Path:
    """Return the model's folder: the one given, or the shared vocabulary of Qwen2 with a ChatML template."""
    if model is not None:
        return model
    source = SHARED / "oracles" / "tokenizers" / "qwen2"
    if not source.is_dir():
        raise SystemExit(f"bench.render: {source} is absent: set OCTAVO_SHARED, or give a folder with --model")
    (scratch / "tokenizer.json").write_bytes(gzip.decompress((source / "tokenizer.json.gz").read_bytes()))
    (scratch / "tokenizer_config.json").write_bytes((source / "tokenizer_config.json").read_bytes())
    (scratch / "chat_template.jinja").write_text(_TEMPLATE, encoding="utf-8")
    return scratch


def _measure(work: Callable[[Any], list[int]], inputs: Sequence[Any], clients: int) -> tuple[float, float, int]:
    """Return inputs a second, milliseconds of CPU of one, and the tokens that came out.

    Each client is a thread with inputs of its own, so that handing them over costs nothing.
    """

    def client(number: int) -> int:
        return sum(len(work(one)) for one in inputs[number::clients])

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(len, inputs[:clients]))  # threads are there
        began, cpu = time.perf_counter(), time.process_time()
        tokens = sum(pool.map(client, range(clients)))
        passed, cpu = time.perf_counter() - began, time.process_time() - cpu
        return len(inputs) / passed, cpu * 1000 / len(inputs), tokens


def _length(engines: Engines, texts: Conversations, tokens: int, clients: int, rounds: int, budget: int) -> list[Row]:
    """Measure conversations that nobody has seen before, engines taking turns: no cache of whole texts helps."""
    count = max(clients, budget // tokens)
    work: dict[str, Callable[[Any], list[int]]] = {
        "transformers": engines.transformers,
        "octavo": engines.octavo,
        "transformers, tokenizing alone": engines.transformers_encode,
        "octavo, tokenizing alone": engines.encode,
    }
    found: dict[str, list[tuple[float, float]]] = {what: [] for what in work}
    made = 0
    for number in range(rounds):
        for what, one in work.items():
            names = (f"{tokens} {clients} {number} {what} {index}" for index in range(count))
            inputs: Sequence[Any] = [texts.draw(tokens, name) for name in names]
            if "alone" in what:
                inputs = [engines.text(messages) for messages in inputs]
            rate, cpu, out = _measure(one, inputs, clients)
            found[what].append((rate, cpu))
            made += out
    each = made // (rounds * count * len(work))
    return [_row(what, tokens, clients, each, found) for what in work]


def _row(what: str, tokens: int, clients: int, each: int, found: dict[str, list[tuple[float, float]]]) -> Row:
    alone = ", tokenizing alone" if "alone" in what else ""
    pairs = list(zip(found[what], found[f"transformers{alone}"], strict=True))
    rates = [rate for rate, _ in found[what]]
    middle = statistics.median(rates)
    return Row(
        what,
        tokens,
        clients,
        each,
        per_second=middle,
        spread=(max(rates) - min(rates)) / middle,
        times=statistics.median(mine[0] / base[0] for mine, base in pairs),
        cpu_ms=statistics.median(cpu for _, cpu in found[what]),
        cpu_times=statistics.median(base[1] / mine[1] for mine, base in pairs),
    )


def _table(rows: Sequence[Row], growing: Sequence[Part], families: Sequence[Family], cost: Cost | None) -> str:
    """Return the figures as Markdown."""
    lines = ["| tokens | clients | what | a second | spread | times | CPU, ms | times |", "|---|" + "---|" * 7]
    for row in rows:
        figures = (
            f"{row.per_second:,.1f} | {row.spread:.0%} | {row.times:.1f} | {row.cpu_ms:.3f} | {row.cpu_times:.1f} |"
        )
        lines.append(f"| {row.measured_tokens:,} | {row.clients} | {row.what} | {figures}")
    lines += [
        "",
        "| turns | tokens | render, ms | encode, ms | request, ms | Transformers, ms |",
        "|---|---|---|---|---|---|",
    ]
    for part in growing:
        figures = f"{part.render_ms:.2f} | {part.encode_ms:.2f} | {part.request_ms:.2f} | {part.transformers_ms:.1f} |"
        lines.append(f"| {part.turns} | {part.tokens:,} | {figures}")
    lines += ["", "| template | tokens | first 50, ms | last 50, ms | new, ms |", "|---|---|---|---|---|"]
    for family in families:
        figures = f"{family.first_ms:.2f} | {family.last_ms:.2f} | {family.new_ms:.2f} |"
        lines.append(f"| {family.template} | {family.tokens:,} | {figures}")
    if cost is not None:
        lines += ["", f"| a token | {' | '.join(cost.columns)} |", "|---|" + "---|" * len(cost.columns)]
        lines += [
            f"| {what} | {' | '.join(f'{value:,.2f}' for value in values)} |" for what, values in cost.rows.items()
        ]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bench; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.render", description=__doc__)
    parser.add_argument("--model", type=Path, help="a folder with tokenizer.json and chat_template.jinja (Qwen2's)")
    parser.add_argument("--output", type=Path, default=_ROOT / "bench" / "results" / "render.json")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only-growing", action="store_true", help="measure the growing conversation and nothing else")
    parser.add_argument("--cost", action="store_true", help="count instructions and allocations too: builds with cargo")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; the figures mean nothing")
    args = parser.parse_args(argv)
    rounds, budget = (1, 10_000) if args.quick else (args.rounds, 300_000)
    texts = Conversations()
    with tempfile.TemporaryDirectory() as scratch:
        folder = _folder(args.model, Path(scratch))
        engines = Engines(folder)
        for probe in (3_000, 100_000):
            messages = texts.draw(probe, f"probe of {probe}")
            wanted = engines.transformers(messages)
            if engines.octavo(messages) != wanted:
                raise SystemExit("bench.render: the two give different ids")
            texts.letters_per_token *= probe / len(wanted)
        lengths = [(tokens, clients) for tokens in _LENGTHS for clients in _CLIENTS if not args.only_growing]
        rows = [row for length in lengths for row in _length(engines, texts, *length, rounds, budget)]
        turns = 100 if args.quick else 400
        growing = grow(engines, texts, turns)
        families = by_template(folder, Path(scratch) / "families", texts, turns)
        program = find()
        start = ready(program, folder) if program is not None else None
        cost = measure(folder, texts) if args.cost else None
    print(_table(rows, growing, families, cost))
    if start is None:
        print("\nno octavo-renderer was found")
    else:
        used = f"{start.cpu_s:.2f} s of CPU, {start.peak_mb:.0f} MB"
        print(f"\noctavo-renderer is ready after {start.seconds:.2f} s ({used})")
    found = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": describe(),
        "versions": {
            "octavo_native": octavo_native.__version__,
            "transformers": transformers.__version__,
            "tokenizers": tokenizers.__version__,
        },
        "rows": [asdict(row) for row in rows],
        "growing": [asdict(part) for part in growing],
        "families": [asdict(family) for family in families],
        "start": asdict(start) if start is not None else None,
        "cost": asdict(cost) if cost is not None else None,
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
