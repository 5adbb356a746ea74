"""`python -m bench.gpu --out FILE [STAGE ...]`: see docs/benchmarks.md. Each stage fits into a few minutes."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bench.gpu import library, server
from bench.gpu.models import write_model
from bench.gpu.records import Results
from bench.measure import commit

if TYPE_CHECKING:
    from octavo.llm import LLM

__all__ = ["main"]

#: Long contexts: name, rows, tokens of each prompt.
LONG = (("1x16k", 1, 16384), ("8x16k", 8, 16384), ("16x8k", 16, 8192), ("32x8k", 32, 8192), ("64x4k", 64, 4096),
        ("128x2k", 128, 2048))  # fmt: skip


class Bench:
    """The stages. One engine at a time; stages of the same model share it."""

    def __init__(self, results: Results, folder: Path, cache: Path, logs: Path) -> None:
        self._results = results
        self._cache = cache
        self._logs = logs
        self._8b = write_model("8b", folder / "8b")
        self._06b = write_model("06b", folder / "06b")
        self._open: tuple[Path, int, LLM] | None = None

    def close(self) -> None:
        """End the engine, if one runs."""
        if self._open is not None:
            self._open[2].close()
            self._open = None

    def serve(self) -> None:
        """Start-up without and with Triton's cache, and online loads."""
        self.close()
        log = self._logs / "serve.log"
        # Prompts of a seed are the same in each load: without the prefix cache, none is found computed.
        flags = ("--max-model-len", "16384", "--no-enable-prefix-caching")
        with server.serving(self._8b, log, self._cache, *flags) as (_, seconds):
            self._results.add("8b_ready_cold", seconds, "s")
        with server.serving(self._8b, log, self._cache, *flags) as (port, seconds):
            self._results.add("8b_ready_warm", seconds, "s")
            server.online(self._results, port, self._8b, "8b_online_c1", 20, "--max-concurrency", "1")
            server.online(self._results, port, self._8b, "8b_online_c64", 300, "--max-concurrency", "64")
            server.online(self._results, port, self._8b, "8b_online_20rps", 300, "--request-rate", "20")

    def latency(self) -> None:
        """Decode steps, prefill, prefix hits."""
        llm = self._engine(self._8b)
        for rows in (1, 32, 64, 128, 256):
            library.decode(self._results, llm, f"8b_decode_b{rows}", rows)
        for rows in (8, 64):
            library.prefill(self._results, llm, f"8b_prefill_{rows}x2048", rows, 2048, rate=True)
        library.prefill(self._results, llm, "8b_prompt_16k", 1, 16384, rate=False)
        library.prefill(self._results, llm, "8b_prompt_32k", 1, 32000, rate=False)
        library.prefix_hit(self._results, llm, "8b_prefix_hit_16k", 16384)

    def throughput(self) -> None:
        """Batches."""
        llm = self._engine(self._8b)
        library.batch(self._results, llm, "8b_offline_512", 512, 1024, 128)
        library.batch(self._results, llm, "8b_offline_64x8k", 64, 8192, 256)

    def long(self) -> None:
        """Decode steps of long contexts."""
        llm = self._engine(self._8b)
        for name, rows, prompt in LONG:
            # The first rows decode while the last are prefilled.
            library.decode(self._results, llm, f"8b_decode_{name}", rows, prompt, 48 + rows * prompt // 8192)

    def small(self) -> None:
        """The 0.6B model."""
        llm = self._engine(self._06b)
        for rows in (1, 32, 256):
            library.decode(self._results, llm, f"06b_decode_b{rows}", rows)
        library.batch(self._results, llm, "06b_offline_512", 512, 1024, 128)

    def tp2(self) -> None:
        """Two GPUs."""
        llm = self._engine(self._8b, 2)
        for rows in (1, 32, 256):
            library.decode(self._results, llm, f"8b_tp2_decode_b{rows}", rows)
        library.prefill(self._results, llm, "8b_tp2_prefill_8x2048", 8, 2048, rate=True)
        library.batch(self._results, llm, "8b_tp2_offline_512", 512, 1024, 128)

    def _engine(self, folder: Path, ranks: int = 1) -> LLM:
        if self._open is None or self._open[:2] != (folder, ranks):
            self.close()
            self._open = (folder, ranks, library.open_model(folder, tensor_parallel_size=ranks))
        return self._open[2]


def main() -> int:
    """Run the stages that are named; one that fails does not keep the others from running."""
    stages = ("serve", "latency", "throughput", "long", "small", "tp2")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where the JSON goes; logs go beside it")
    parser.add_argument("--cache", type=Path, help="Triton's cache for `serve`; default: an empty folder")
    parser.add_argument("stages", nargs="*", default=list(stages[:-1]), help=f"of {', '.join(stages)}")
    args = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        cache = args.cache or Path(folder) / "triton"
        os.environ["TRITON_CACHE_DIR"] = str(cache)
        results = Results.start(args.out, f"python -m bench.gpu {' '.join(args.stages)}", commit())
        bench = Bench(results, Path(folder), cache, args.out.parent)
        for name in args.stages:
            stage: Callable[[], None] = getattr(bench, name)
            try:
                stage()
            except Exception as error:
                failed += 1
                bench.close()
                print(f"stage {name} failed: {error}", file=sys.stderr, flush=True)
        bench.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
