"""`octavo bench serve`."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from octavo.benchmarks import datasets, plot, probe, report, stats
from octavo.benchmarks.connection import Connections, Server, clock
from octavo.benchmarks.progress import Progress
from octavo.benchmarks.runner import Run, Runner, recount
from octavo.errors import OctavoError

if TYPE_CHECKING:
    from octavo.benchmarks.datasets import Sample
    from octavo.benchmarks.options import ServeOptions
    from octavo.benchmarks.tokenizer import Tokenizer

__all__ = ["Outcome", "measure", "save", "serve"]

READY_RETRY_S = 1.0
SHOWN_ERRORS = 5


@dataclass(frozen=True, slots=True)
class Outcome:
    """A measured run: the JSON object with all details, and what it was made from."""

    found: dict[str, Any]
    metrics: stats.Metrics
    run: Run


def serve(options: ServeOptions) -> int:
    """Run the load, print and write the result; return the exit code: 1 when more than --max-failures failed."""
    outcome = asyncio.run(measure(options))
    print(report.table(outcome.found, outcome.metrics, options))
    _print_errors(outcome.run)
    path = save(options, outcome.found)
    if path is not None:
        print(f"Result: {path}")
    if options.plot is not None:
        plot.write_run(Path(options.plot), outcome.found, options.label or options.backend)
        print(f"Plot: {options.plot}")
    if options.plot_timeline:
        timeline = _path(options, outcome.found).with_suffix(".timeline.html")
        plot.write_timeline(timeline, outcome.found)
        print(f"Timeline: {timeline}")
    if outcome.metrics.failed > options.max_failures:
        print(
            f"octavo: {outcome.metrics.failed} of {len(outcome.run.records)} requests failed; --max-failures allows "
            f"{options.max_failures}",
            file=sys.stderr,
        )
        return 1
    return 0


async def measure(options: ServeOptions) -> Outcome:
    """Do all that comes before the load, the load, and the sums. Raises OctavoError where no load could be run."""
    headers = _headers(options)
    server = Server.parse(options.url)
    async with Connections(server, verify=not options.insecure) as connections:
        if options.ready_check_timeout_sec > 0:
            await _wait_reachable(connections, server, headers, options.ready_check_timeout_sec)
        models = await _models(connections, server, headers, needed=options.model is None)
        model = options.served_model_name or options.model or str(models[0]["id"])
        tokenizer = probe.choose_tokenizer(options, model, models)
        progress = Progress(shown=not options.disable_tqdm)
        runner = Runner(options, model, connections, progress.seen)
        await probe.calibrate(tokenizer, runner, headers)
        samples = datasets.samples(options, tokenizer)
        await _prepare(options, runner, samples, headers)
        if options.profile:
            await probe.fetch(connections, server, "POST", "/start_profile", headers)
        async with progress.over(sum(len(sample.turns) for sample in samples)):
            run = await runner.run(samples, headers)
        if options.profile:
            await probe.fetch(connections, server, "POST", "/stop_profile", headers)
    return _sum(options, model, tokenizer, run)


def _sum(options: ServeOptions, model: str, tokenizer: Tokenizer, run: Run) -> Outcome:
    if tokenizer.exact:
        run = replace(run, records=recount(run.records, tokenizer.count))
    metrics = stats.measure(run.records, run.begin, options.percentiles, options.objectives)
    date = time.strftime("%Y%m%d-%H%M%S")
    found = report.result(options, model, tokenizer.name, date, run, metrics)
    return Outcome({**found, **_metadata(options)}, metrics, run)


def _metadata(options: ServeOptions) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in options.metadata)


def _headers(options: ServeOptions) -> dict[str, str]:
    key = os.environ.get("OPENAI_API_KEY")
    return ({"authorization": f"Bearer {key}"} if key else {}) | options.headers


async def _wait_reachable(connections: Connections, server: Server, headers: dict[str, str], seconds: float) -> None:
    """Wait until the server answers anything at all over HTTP. Raises OctavoError."""
    deadline = clock() + seconds
    while True:
        try:
            status, _ = await probe.fetch(connections, server, "GET", "/v1/models", headers)
        except OSError as error:
            why = str(error)
        else:
            if status < 500:
                return
            why = f"HTTP {status}"
        if clock() + READY_RETRY_S > deadline:
            raise OctavoError(f"{server.authority} was not ready within {seconds:g} s: {why}")
        await asyncio.sleep(READY_RETRY_S)


async def _models(connections: Connections, server: Server, headers: dict[str, str], *, needed: bool) -> probe.Models:
    try:
        models = await probe.first_model(connections, server, headers)
    except OSError as error:
        if needed:
            raise OctavoError(
                f"cannot ask {server.authority} for its models: {error}. Is the server running?"
            ) from None
        return []
    if needed and not models:
        raise OctavoError(f"{server.authority} lists no model under /v1/models: name one with --model")
    return models


async def _prepare(options: ServeOptions, runner: Runner, samples: Sequence[Sample], headers: dict[str, str]) -> None:
    """See to it that requests succeed, if that was asked, and warm up."""
    first = samples[0].turns[0]
    if options.ready_check_timeout_sec > 0:
        deadline = clock() + options.ready_check_timeout_sec
        while (failure := (await runner.one(first, headers)).failure) is not None:
            if clock() + READY_RETRY_S > deadline:
                raise OctavoError(f"the first request failed ({failure.kind}): {failure.message}")
            await asyncio.sleep(READY_RETRY_S)
    limit = asyncio.Semaphore(options.max_concurrency or max(options.num_warmups, 1))

    async def warm() -> None:
        async with limit:
            await runner.one(first, headers)

    await asyncio.gather(*(warm() for _ in range(options.num_warmups)))


def _print_errors(run: Run) -> None:
    failed = [record for record in run.records if record.failure is not None]
    for record in failed[:SHOWN_ERRORS]:
        assert record.failure is not None
        print(f"Request {record.id} failed ({record.failure.kind}): {record.failure.message}", file=sys.stderr)
    if len(failed) > SHOWN_ERRORS:
        print(f"... and {len(failed) - SHOWN_ERRORS} more", file=sys.stderr)


def _path(options: ServeOptions, found: dict[str, Any]) -> Path:
    """Return where the result goes: the name that `vllm bench serve` would give it."""
    name = options.result_filename
    if name is None:
        ramp = options.arrivals.ramp_up
        load = f"{options.request_rate}qps"
        if ramp is not None:
            load = f"ramp-up-{ramp.strategy}-{ramp.start:g}qps-{ramp.end:g}qps"
        if options.max_concurrency is not None:
            load += f"-concurrency{options.max_concurrency}"
        model = str(found["model_id"]).rstrip("/").rsplit("/", 1)[-1]
        name = f"{options.label or options.backend}-{load}-{model}-{found['date']}.json"
    return Path(options.result_dir or "") / name


def save(options: ServeOptions, found: dict[str, Any]) -> Path | None:
    """Write the result if that was asked, and return where. Raises OctavoError."""
    if not (options.save_result or options.append_result):
        return None
    path = _path(options, found)
    kept = {key: value for key, value in found.items() if options.save_detailed or key not in report.DETAILS}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        more = options.append_result and path.exists() and path.stat().st_size > 0
        with path.open("ab" if options.append_result else "wb") as file:
            file.write((b"\n" if more else b"") + msgspec.json.encode(kept))
    except OSError as error:
        raise OctavoError(f"cannot write the result to {path}: {error}") from None
    return path
