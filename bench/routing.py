"""What routing by prefix is worth: `python -m bench.routing`.

Several engine cores behind one frontend, and prompts that share prefixes, more of them than one core's cache holds. The
same requests are served twice by new servers: each by the rank whose turn it is (round robin, by the header
X-data-parallel-rank), and each where octavo's router sends it. Hits are counted by the cores.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

#: Of a model that costs next to nothing, so that a machine of two cores can run several.
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 1024, "hidden_size": 128,
    "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
    "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "torch_dtype": "float32",
}  # fmt: skip
#: Keys and values of a token in float32.
TOKEN_BYTES = 4 * 2 * 2 * 32 * 4


@dataclass(frozen=True, slots=True)
class Row:
    """One policy's figures."""

    policy: str
    hit_rate: float  # tokens found over tokens looked up, all cores together
    ttft_ms: float  # median
    seconds: float  # for all requests


@contextmanager
def served(ranks: int, kv_tokens: int) -> Iterator[str]:
    """Run a server and give its address; stop it as Ctrl-C does."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps(CONFIG))
        flags = ["--load-format", "dummy", "--dtype", "float32", "--served-model-name", "bench", "--port", "0",
                 "--data-parallel-size", str(ranks), "--kv-cache-memory-bytes", str(kv_tokens * TOKEN_BYTES),
                 "--log-level", "warning"]  # fmt: skip
        command = [sys.executable, "-m", "octavo", "serve", str(folder), *flags]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if "ready at" not in line:
                raise SystemExit("the server did not start")
            yield line.split()[-1]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
            process.stdout.close()


def prompts(args: argparse.Namespace) -> list[list[int]]:
    """Requests in a random order: each one of the shared prefixes and a tail of its own."""
    rng = random.Random(args.seed)
    words = range(3, CONFIG["vocab_size"])  # type: ignore[arg-type]
    prefixes = [rng.choices(words, k=args.prefix_tokens) for _ in range(args.prefixes)]
    return [rng.choice(prefixes) + rng.choices(words, k=args.tail_tokens) for _ in range(args.requests)]


def run(policy: str, url: str, work: list[list[int]], args: argparse.Namespace) -> Row:
    """Send all requests, so many at a time, and read the counters."""
    with httpx.Client(base_url=url, timeout=120) as client:

        def ask(number: int) -> float:
            headers = {"X-data-parallel-rank": str(number % args.ranks)} if policy == "round robin" else {}
            body = {"model": "bench", "prompt": work[number], "max_tokens": args.output_tokens, "ignore_eos": True,
                    "temperature": 0, "stream": True}  # fmt: skip
            began = time.perf_counter()
            with client.stream("POST", "/v1/completions", json=body, headers=headers) as answer:
                answer.raise_for_status()
                first = None
                for _ in answer.iter_lines():
                    first = first or time.perf_counter()
            assert first is not None
            return 1000 * (first - began)

        began = time.perf_counter()
        with ThreadPoolExecutor(args.concurrency) as pool:
            waits = list(pool.map(ask, range(len(work))))
        seconds = time.perf_counter() - began
        time.sleep(1.5)  # the cores report once a second
        text = client.get("/metrics").text
    hits, looked = (
        float(re.findall(rf"^octavo:prefix_cache_{name}_total\S* (\S+)$", text, re.M)[0])
        for name in ("hits", "queries")
    )
    return Row(policy, hits / looked, statistics.median(waits), seconds)


def main() -> None:
    """Run both policies and print one table."""
    parser = argparse.ArgumentParser(prog="python -m bench.routing", description=__doc__)
    for name, value in (("ranks", 4), ("prefixes", 16), ("prefix-tokens", 512), ("tail-tokens", 32), ("requests", 400),
                        ("concurrency", 16), ("output-tokens", 8), ("seed", 1)):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value, metavar="N", help=f"default: {value}")
    parser.add_argument("--kv-tokens", type=int, default=4096, metavar="N", help="of each core's cache; default: 4096")
    parser.add_argument("--write", action="store_true", help="keep bench/results/routing.json")
    args = parser.parse_args()
    work = prompts(args)
    rows = []
    for policy in ("round robin", "router"):
        with served(args.ranks, args.kv_tokens) as url:
            rows.append(run(policy, url, work, args))
    print(f"{args.requests} requests over {args.prefixes} prefixes of {args.prefix_tokens} tokens, {args.ranks} cores "
          f"with {args.kv_tokens} tokens of cache each, {args.concurrency} at a time\n")  # fmt: skip
    print("| policy | hit rate | TTFT p50 | all requests |\n|---|---|---|---|")
    for row in rows:
        print(f"| {row.policy} | {row.hit_rate:.1%} | {row.ttft_ms:.1f} ms | {row.seconds:.1f} s |")
    if args.write:
        kept = {"settings": vars(args), "rows": [asdict(row) for row in rows]}
        Path(__file__).with_name("results").joinpath("routing.json").write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
