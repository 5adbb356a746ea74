"""`octavo top`: how a running server does, in the terminal."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from octavo.cli.api import Api
from octavo.cli.flags import RAW
from octavo.cli.prometheus import Scrape, parse
from octavo.errors import ConfigError

__all__ = ["add_command", "view"]

_EXAMPLES = """\
examples:
  octavo top                                    the server on this machine, every 2 s, until Ctrl-C
  octavo top --url https://host:8000 -n 1       one look
  octavo top --url unix:/run/octavo.sock

The server's keys: --api-key or OPENAI_API_KEY, with the role metrics.
"""

_DEFAULT_URL = "http://127.0.0.1:8000"
_CLEAR = "\033[H\033[J"


def add_command(commands: Any) -> None:
    """Add the command to `octavo`'s subparsers."""
    command = commands.add_parser(
        "top",
        help="watch a running server: throughput, latency, queue, cache",
        description="Show the throughput, latencies, queue and cache of a running server, again and again.",
        usage="octavo top [FLAGS]",
        epilog=_EXAMPLES,
        **RAW,
    )
    command.add_argument("--url", metavar="URL", default=_DEFAULT_URL, help=f"the server (default: {_DEFAULT_URL})")
    command.add_argument(
        "--api-key", metavar="KEY", default=os.environ.get("OPENAI_API_KEY", ""), help="(default: $OPENAI_API_KEY)"
    )
    command.add_argument("--interval", metavar="SECONDS", type=float, default=2.0, help="between looks (default: 2)")
    command.add_argument("-n", "--looks", metavar="N", type=int, default=0, help="leave after N looks; 0: never")
    command.set_defaults(parser=command, run=_run)


def view(now: Scrape, before: Scrape | None, seconds: float) -> list[str]:
    """Return the lines that show a scrape, with rates and latencies since an earlier one, `seconds` ago.

    Without an earlier one they are those since the server's start, and rates are left out.
    """

    def rate(name: str) -> str:
        if before is None or seconds <= 0:
            return "-"
        return f"{max(0.0, now.total(name) - before.total(name)) / seconds:.1f}"

    def latency(name: str) -> str:
        found = [now.quantile(name, share, before) for share in (0.5, 0.9, 0.99)]
        return "   ".join(f"{'-' if value is None else f'{value * 1e3:.1f}':>8}" for value in found)

    def gauge(name: str) -> str:
        return f"{now.total(name):.0f}"

    ready = "ready" if now.total("octavo:engine_ready") else "no engine is ready"
    hits, queries = (_since(now, before, f"octavo:prefix_cache_{name}_total") for name in ("hits", "queries"))
    hit_rate = "-" if queries <= 0 else f"{100 * hits / queries:.0f} %"
    restarts = now.total("octavo:worker_restarts_total") + now.total("octavo:engine_restarts_total")
    failed = _since(now, before, "octavo:request_success_total", finished_reason="error")
    return [
        f"{_model(now)}: {ready}",
        "",
        f"requests   running {gauge('octavo:num_requests_running'):>6}   waiting "
        f"{gauge('octavo:num_requests_waiting'):>6}   open {gauge('octavo:num_requests_open'):>6}   "
        f"failed {failed:>4.0f}",
        f"per second requests {rate('octavo:request_success_total'):>5}   prompt tokens "
        f"{rate('octavo:prompt_tokens_total'):>8}   output tokens {rate('octavo:generation_tokens_total'):>8}",
        f"KV cache   used {100 * now.total('octavo:kv_cache_usage_perc'):>7.1f} %   prefix hits {hit_rate:>6}   "
        f"preemptions {gauge('octavo:num_preemptions_total'):>4}   restarts {restarts:>3.0f}",
        "",
        f"milliseconds {'p50':>19}   {'p90':>8}   {'p99':>8}",
        f"first token             {latency('octavo:time_to_first_token_seconds')}",
        f"between tokens          {latency('octavo:inter_token_latency_seconds')}",
        f"whole request           {latency('octavo:e2e_request_latency_seconds')}",
        f"in the engine's queue   {latency('octavo:request_queue_time_seconds')}",
    ]


def _since(now: Scrape, before: Scrape | None, name: str, **labels: str) -> float:
    return now.total(name, **labels) - (before.total(name, **labels) if before is not None else 0.0)


def _model(now: Scrape) -> str:
    return next((labels["model_name"] for _, labels, _ in now.samples if "model_name" in labels), "unknown model")


def _run(arguments: argparse.Namespace) -> int:
    if arguments.interval <= 0:
        raise ConfigError(f"--interval {arguments.interval}: must be more than 0", "interval")
    api = Api(arguments.url, arguments.api_key, timeout_s=30.0)
    clear = _CLEAR if sys.stdout.isatty() else ""
    before: Scrape | None = None
    taken = looks = 0.0
    while True:
        now, at = parse(api.text("/metrics")), time.monotonic()
        print(f"{clear}{api.url}  " + "\n".join(view(now, before, at - taken)), flush=True)
        before, taken, looks = now, at, looks + 1
        if looks == arguments.looks:
            return 0
        time.sleep(arguments.interval)
