"""The command: conversations of three lengths, one client and eight, one that grows; bench/results/render.json."""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import octavo_native
import tokenizers
import transformers

from bench.compare.machine import describe
from bench.render.clients import Clients, Processes, Threads, Timing
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
_CLIENTS = 8
#: What is measured, and the method of Engines that does it.
_WORK = {
    "transformers": "transformers",
    "octavo": "octavo",
    "transformers, tokenizing alone": "transformers_encode",
    "octavo, tokenizing alone": "encode",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: the median over rounds."""

    what: str
    tokens: int  # asked for
    clients: int
    kind: str  # of clients: threads or processes
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


def _lengths(engines: Engines, folder: Path, texts: Conversations, rounds: int, budget: int) -> list[Row]:
    """Measure each length with one client, with threads and with processes."""
    with Processes(folder, _CLIENTS, texts.draw(30_000, "first")) as processes:
        kinds: tuple[Clients, ...] = (Threads(engines, 1), Threads(engines, _CLIENTS), processes)
        each = ((tokens, clients) for tokens in _LENGTHS for clients in kinds)
        return [row for tokens, clients in each for row in _length(engines, clients, texts, tokens, rounds, budget)]


def _length(
    engines: Engines, clients: Clients, texts: Conversations, tokens: int, rounds: int, budget: int
) -> list[Row]:
    """Measure conversations that nobody has seen before, engines taking turns: no cache of whole texts helps."""
    count = max(clients.count, budget // tokens)
    found: dict[str, list[Timing]] = {what: [] for what in _WORK}
    for number in range(rounds):
        for what, method in _WORK.items():
            names = (f"{tokens} {clients.count} {clients.kind} {number} {what} {index}" for index in range(count))
            inputs: Sequence[Any] = [texts.draw(tokens, name) for name in names]
            if "alone" in what:
                inputs = [engines.text(messages) for messages in inputs]
            found[what].append(clients.time(method, inputs))
    made = sum(timing.tokens for timings in found.values() for timing in timings)
    each = made // (rounds * count * len(_WORK))
    return [_row(what, tokens, clients, each, found) for what in _WORK]


def _row(what: str, tokens: int, clients: Clients, each: int, found: dict[str, list[Timing]]) -> Row:
    alone = ", tokenizing alone" if "alone" in what else ""
    pairs = list(zip(found[what], found[f"transformers{alone}"], strict=True))
    rates = [timing.per_second for timing in found[what]]
    middle = statistics.median(rates)
    return Row(
        what,
        tokens,
        clients.count,
        clients.kind,
        each,
        per_second=middle,
        spread=(max(rates) - min(rates)) / middle,
        times=statistics.median(mine.per_second / base.per_second for mine, base in pairs),
        cpu_ms=statistics.median(timing.cpu_ms for timing in found[what]),
        cpu_times=statistics.median(base.cpu_ms / mine.cpu_ms for mine, base in pairs),
    )


def _table(rows: Sequence[Row], growing: Sequence[Part], families: Sequence[Family], cost: Cost | None) -> str:
    """Return the figures as Markdown."""
    lines = ["| tokens | clients | what | a second | spread | times | CPU, ms | times |", "|---|" + "---|" * 7]
    for row in rows:
        figures = (
            f"{row.per_second:,.1f} | {row.spread:.0%} | {row.times:.1f} | {row.cpu_ms:.3f} | {row.cpu_times:.1f} |"
        )
        clients = "1" if row.clients == 1 else f"{row.clients} {row.kind}"
        lines.append(f"| {row.measured_tokens:,} | {clients} | {row.what} | {figures}")
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
        rows = [] if args.only_growing else _lengths(engines, folder, texts, rounds, budget)
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
