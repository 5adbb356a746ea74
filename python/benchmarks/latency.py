"""`octavo bench latency`: how long one batch takes, without a server."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from octavo.errors import OctavoError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from octavo.llm import LLM

__all__ = ["PERCENTILES", "add_command", "figures", "table"]

#: Of the latencies, in the report.
PERCENTILES = (10, 25, 50, 75, 90, 99)

_EXAMPLES = """\
examples:
  octavo bench latency --model ./model --input-len 128 --output-len 32 --batch-size 1
  octavo bench latency --model ./model --batch-size 16 --num-iters 10 --output-json latency.json

Each iteration runs one batch of new random prompts from start to end. Flags and JSON keys are those of
`vllm bench latency`.
"""


def add_command(commands: Any, raw: dict[str, Any]) -> None:
    """Add `latency` to the commands of `octavo bench`."""
    from octavo.benchmarks.offline import add_engine_flags, count

    parser: argparse.ArgumentParser = commands.add_parser(
        "latency",
        help="how long one batch takes, without a server",
        description="Run one batch of requests again and again, without a server, and report how long each took.",
        usage="octavo bench latency --model MODEL [FLAGS]",
        epilog=_EXAMPLES,
        **raw,
    )
    for flag, default, low, text in (
        ("--input-len", 32, 1, "tokens of each prompt"),
        ("--output-len", 128, 1, "tokens of each output; end tokens do not end it"),
        ("--batch-size", 8, 1, "requests of a batch"),
        ("--num-iters-warmup", 10, 0, "batches that are run before, and not counted"),
        ("--num-iters", 30, 1, "batches that are measured"),
    ):
        parser.add_argument(flag, type=count(low), default=default, metavar="N", help=f"{text} (default: {default})")
    parser.add_argument("--output-json", default=None, metavar="FILE", help="write the figures as JSON")
    add_engine_flags(parser)
    parser.set_defaults(run=_run, parser=parser)


def _run(given: dict[str, Any]) -> int:
    from octavo.benchmarks.offline import load, write_json

    with load(given, given["input_len"] + given["output_len"]) as llm:
        seconds = _measure(llm, given)
    found = {name: given[name] for name in ("model", "batch_size", "input_len", "output_len")} | figures(seconds)
    print(table(found))
    write_json(given["output_json"], found)
    return 0


def _measure(llm: LLM, given: dict[str, Any]) -> list[float]:
    """Return the seconds of each measured batch. Raises OctavoError when a request fails: its time means nothing."""
    from octavo.benchmarks.offline import failed, random_prompts
    from octavo.llm import SamplingParams

    rng = np.random.default_rng(int(given["seed"] or 0))
    params = SamplingParams(max_tokens=given["output_len"], ignore_eos=True)
    warmup, seconds = given["num_iters_warmup"], []
    for iteration in range(warmup + given["num_iters"]):
        prompts = random_prompts(rng, given["batch_size"], given["input_len"], llm.vocab_size)
        began = time.perf_counter()
        outputs = llm.generate(prompts, params, use_tqdm=False)
        took = time.perf_counter() - began
        for message in failed(outputs):
            raise OctavoError(f"a request failed: {message}")
        if iteration >= warmup:
            seconds.append(took)
        kind = "warm-up" if iteration < warmup else "batch"
        print(f"{kind} {iteration + 1} of {warmup + given['num_iters']}: {took:.3f} s", file=sys.stderr)
    return seconds


def figures(seconds: Sequence[float]) -> dict[str, Any]:
    """Return the figures of batches, in seconds, under the keys of `vllm bench latency`."""
    values = np.asarray(seconds)
    return {
        "avg_latency": float(values.mean()),
        "latencies": [float(value) for value in values],
        "percentiles": {str(p): float(np.percentile(values, p)) for p in PERCENTILES},
    }


def table(found: dict[str, Any]) -> str:
    """Lay the figures out to be read."""
    per_token = found["avg_latency"] / found["output_len"]
    rate = found["batch_size"] * found["output_len"] / found["avg_latency"]
    return "\n".join(
        [
            f"batches of {found['batch_size']}, {found['input_len']} tokens in, {found['output_len']} out",
            f"{found['avg_latency']:>10.4f} s  average latency of {len(found['latencies'])} batches",
            *(f"{value:>10.4f} s  p{p}" for p, value in found["percentiles"].items()),
            f"{1000 * per_token:>10.2f} ms per output token of a request",
            f"{rate:>10.1f} output tokens/s",
        ]
    )
