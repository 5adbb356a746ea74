"""Decode and prefill of Qwen3-8B shapes through the engine core and the runner: what a user gets, without the sockets.

`python -m bench.runner --out FILE [--batches 1,32,256]`. Random weights, random prompts, greedy, no end tokens, no
prefix cache; the work of issue 7's table, with a prompt of 128 and an output of 64 tokens. The step time is the median
between results while all requests decode.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from array import array
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch
import triton

from bench.measure import calibrate, commit
from bench.shapes import QWEN3_8B, Shape
from octavo.engine_core.cache.group import Flight
from octavo.engine_core.cache.layout import block_tokens_by_kind, build_cache, group_layers
from octavo.engine_core.core import Core
from octavo.engine_core.sched.budget import SchedLimits
from octavo.wire.frontend import AddRequest, SamplingParams
from octavo.wire.worker import AllocateKv, Init, StepResult
from octavo.workers.model_body import LaunchedStep, ModelBody

__all__ = ["main"]

BLOCK_TOKENS = 16
BUDGET = 8192
PROMPT, OUTPUT = 128, 64
MAX_LEN = 17408
#: Long contexts: name in issue 7's table, rows, tokens of each prompt, vLLM's milliseconds and those wanted.
LONG = (("1x16k", 1, 16384, 5.76, 5.2), ("16x8k", 16, 8192, 9.56, 9.1), ("64x4k", 64, 4096, 14.2, 13.7))
WINDOW = 2
#: Milliseconds of vLLM 0.26.0 on the same work, and what issue 7 asks for.
PEER = {1: (5.21, 4.4), 32: (5.73, 5.1), 64: (6.28, 5.6), 128: (7.83, 7.0), 256: (11.87, 10.6)}


@dataclass(frozen=True, slots=True)
class Run:
    """One batch from its first plan to its last result."""

    step_ms: float  # median over the decode steps in which all rows were there
    spread_ms: float  # distance of the quartiles
    host_ms: float  # median of what scheduling and launching a decode step took
    prefill_s: float  # until the last request's first token
    total_s: float
    tokens: int


def write_config(folder: Path, shape: Shape) -> None:
    """Write the config of a Llama of `shape`."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": MAX_LEN,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": None,
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


class Bench:
    """A loaded model and its core."""

    def __init__(self, shape: Shape, most: int, sizes: tuple[int, ...] | None) -> None:
        self.body = ModelBody()
        self.vocab = shape.vocab
        self.number = 0
        with tempfile.TemporaryDirectory() as folder:
            write_config(Path(folder), shape)
            init = Init(
                0, 1, "", folder, "bfloat16", "cuda:0", "dummy", 0, MAX_LEN, most, BUDGET, threads=1, graph_sizes=sizes
            )
            started = time.monotonic()
            ready = self.body.init(init)
        self.load_s = time.monotonic() - started
        blocks = max(most * (-(-(PROMPT + OUTPUT) // BLOCK_TOKENS) + 2), 64 * (4096 + 256) // BLOCK_TOKENS) + 1
        groups = group_layers(ready.kv_specs, block_tokens_by_kind(BLOCK_TOKENS))
        cache = build_cache(groups, [blocks] * len(groups), Flight(WINDOW, WINDOW * BUDGET, WINDOW), None)
        self.core = Core(SchedLimits(most, BUDGET, MAX_LEN, WINDOW), cache)
        started = time.monotonic()
        self.body.allocate(AllocateKv(tuple(group.alloc(blocks) for group in groups)))
        torch.cuda.synchronize()
        self.record_s = time.monotonic() - started

    def run(self, batch: int, heat: float = 0.0, prompt_len: int = PROMPT, output: int = OUTPUT) -> Run:
        """Serve `batch` requests that arrive together."""
        rng = random.Random(batch)
        for _ in range(batch):
            prompt = array("i", [rng.randrange(self.vocab) for _ in range(prompt_len)])
            sampling = SamplingParams(rng.getrandbits(63), output, heat, 1.0, 0)
            self.core.add(AddRequest(self.number, 1, str(self.number), prompt.tobytes(), b"", sampling, arrival_us=0))
            self.number += 1
        flying: deque[tuple[StepResult | LaunchedStep, bool]] = deque()
        times, host, tokens = [], [], 0
        begun = last = time.perf_counter()
        prefilled, seen = begun, 0
        while not self.core.idle:
            before = time.perf_counter()
            plan = self.core.next_plan()
            if plan is not None:
                pending = self.body.step(plan)
                assert pending is not None
                full = len(plan.samples) == batch and max(array("i", plan.counts), default=0) == 1
                flying.append((pending, full))
                if full:
                    host.append(time.perf_counter() - before)
            if flying and (plan is None or len(flying) == WINDOW):
                pending, full = flying.popleft()
                result = pending if isinstance(pending, StepResult) else pending.wait()
                now = time.perf_counter()
                if full:
                    times.append(now - last)
                last = now
                tokens += len(result.tokens) // 4
                self.core.result(result)
                seen += 1
                if tokens >= batch and prefilled == begun:
                    prefilled = now
        total = time.perf_counter() - begun
        steady = times[4:-2]
        quartiles = statistics.quantiles(steady, n=4)
        return Run(
            statistics.median(steady) * 1e3,
            (quartiles[2] - quartiles[0]) * 1e3,
            statistics.median(host) * 1e3,
            prefilled - begun,
            total,
            tokens,
        )


def main() -> None:
    """Run all batches, print a table and write the records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--batches", default="1,32,64,128,256")
    parser.add_argument("--eager", action="store_true", help="record no steps")
    parser.add_argument("--long", action="store_true", help="long contexts, too")
    parser.add_argument("--profile", type=Path, help="write a table of the device's time of one run here")
    arguments = parser.parse_args()
    batches = [int(batch) for batch in arguments.batches.split(",")]
    ceilings = calibrate()
    torch.cuda.empty_cache()
    bench = Bench(QWEN3_8B, max(64, *batches), () if arguments.eager else None)
    print(f"weights {bench.load_s:.1f} s, KV cache and recording {bench.record_s:.1f} s", flush=True)
    name = "eager" if arguments.eager else "octavo"
    records = [
        record("device_copy", "torch", ceilings.copy / 1e9, "GB/s", 0.0),
        record("matmul_bf16_8192", "cublas", ceilings.matmul / 1e12, "TFLOP/s", 0.0),
        record("8b_runner_load", name, bench.load_s, "s", 0.0),
        record("8b_runner_record", name, bench.record_s, "s", 0.0),
    ]
    for batch in batches:
        bench.run(batch)  # what is compiled or chosen at the first call
        for heat, suffix in ((0.0, ""), (0.8, "_t08")):
            run = min((bench.run(batch, heat) for _ in range(2)), key=lambda run: run.step_ms)
            peer, wanted = PEER.get(batch, (0.0, 0.0))
            print(
                f"batch {batch:4} t={heat}: step {run.step_ms:7.3f} ms ±{run.spread_ms:.3f}"
                f" (vLLM {peer}, wanted {wanted})"
                f"  host {run.host_ms:.3f} ms  prefill {run.prefill_s * 1e3:.1f} ms"
                f"  {run.tokens / run.total_s:.0f} tok/s whole",
                flush=True,
            )
            records.append(record(f"8b_runner_decode_b{batch}{suffix}", name, run.step_ms, "ms", run.spread_ms))
            records.append(record(f"8b_runner_host_b{batch}{suffix}", name, run.host_ms, "ms", 0.0))
        records.append(record(f"8b_runner_prefill_{batch}x{PROMPT}", name, run.prefill_s, "s", 0.0))
    for rows in (1, 8):
        bench.run(rows, 0.0, 2048, 16)
        run = min((bench.run(rows, 0.0, 2048, 16) for _ in range(2)), key=lambda run: run.prefill_s)
        speed = rows * 2048 / run.prefill_s
        print(f"prefill {rows} x 2048: {run.prefill_s * 1e3:.1f} ms, {speed:.0f} tok/s", flush=True)
        records.append(record(f"8b_runner_prefill_{rows}x2048", name, speed, "tok/s", 0.0))
    for suffix, rows, prompt_len, peer, wanted in LONG if arguments.long else ():
        # The first rows still decode when the last are prefilled, in steps of BUDGET tokens.
        run = bench.run(rows, 0.0, prompt_len, 32 + 2 * rows * prompt_len // BUDGET)
        print(f"{suffix}: step {run.step_ms:.3f} ms ±{run.spread_ms:.3f} (vLLM {peer}, wanted {wanted})", flush=True)
        records.append(record(f"8b_runner_decode_{suffix}", name, run.step_ms, "ms", run.spread_ms))
    arguments.out.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    if arguments.profile:
        with torch.profiler.profile() as profile:
            bench.run(batches[0])
        arguments.profile.write_text(profile.key_averages().table(sort_by="cuda_time_total", row_limit=40))


def record(name: str, engine: str, value: float, unit: str, spread: float) -> dict[str, object]:
    """Return one result as bench/results holds it."""
    return {
        "name": name,
        "engine": engine,
        "value": round(value, 4),
        "unit": unit,
        "spread": round(spread, 4),
        "versions": {
            "torch": torch.__version__,
            "triton": triton.__version__,
            "cuda": torch.version.cuda,
            "device": torch.cuda.get_device_name(),
            "commit": commit(),
        },
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "command": "python -m bench.runner",
    }


if __name__ == "__main__":
    main()
