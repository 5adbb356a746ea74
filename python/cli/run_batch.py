"""`octavo run-batch`: a file of requests, a file of answers."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.cli.flags import RAW
from octavo.cli.server import add_flags, address
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.batch import Journal, Lines
    from octavo.cli.api import Api

__all__ = ["add_command"]

_EXAMPLES = """\
examples:
  octavo run-batch smollm2 -i in.jsonl -o out.jsonl         serve a model for as long as the batch takes
  octavo run-batch -i in.jsonl -o out.jsonl                 use the server at http://127.0.0.1:8000
  octavo run-batch --model ./model --served-model-name m -i in.jsonl -o out.jsonl

Each line of the input is a request in OpenAI's batch format:
  {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions",
   "body": {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}}
and each line of the output its answer, in the same order:
  {"id": "...", "custom_id": "1", "response": {"status_code": 200, "request_id": "...", "body": {...}}, "error": null}

Until all is done, answers are kept in OUT.partial. A run that was ended, by Ctrl-C or a crash, is resumed by the same
command: no line is answered twice. More: docs/batch.md.
"""
#: Seconds between two lines that tell how far the batch is, where there is no terminal to draw on.
_TELL_S = 10.0


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to `octavo`'s subparsers."""
    command = commands.add_parser(
        "run-batch",
        help="answer a file of requests, on a running server or on MODEL",
        description="Answer the requests of a file, on a running server or on one started on MODEL; resumable.",
        usage="octavo run-batch [MODEL] -i IN.jsonl -o OUT.jsonl [FLAGS]",
        epilog=_EXAMPLES,
        **RAW,
    )
    group = command.add_argument_group("batch")
    group.add_argument("-i", "--input-file", metavar="FILE", required=True, help="requests, one JSON object a line")
    group.add_argument("-o", "--output-file", metavar="FILE", required=True, help="where the answers go")
    group.add_argument("--overwrite", action="store_true", help="begin anew, whatever is in the output")
    group.add_argument(
        "--max-concurrency", metavar="N", type=int, default=256, help="requests that are open at once (default: 256)"
    )
    group.add_argument("--model", metavar="MODEL", default=argparse.SUPPRESS, help="MODEL, as vLLM's command has it")
    add_flags(command)
    command.set_defaults(parser=command, run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from octavo.batch import Journal, Lines  # not at the top: --help must not pay for the imports

    if arguments.max_concurrency < 1:
        raise ConfigError(f"--max-concurrency {arguments.max_concurrency}: must be 1 or more", "max-concurrency")
    source, output = _file(arguments.input_file, "input-file"), _file(arguments.output_file, "output-file")
    with Lines(source) as lines:
        if arguments.overwrite:
            for path in (output, output.with_name(output.name + ".partial")):
                path.unlink(missing_ok=True)
        partial = output.with_name(output.name + ".partial")
        if output.exists() and not partial.exists():
            if Journal.is_done(output, lines):
                print(f"octavo: {output} has an answer for each line already", file=sys.stderr)
                return 0
            raise ConfigError(
                f"--output-file {output}: there is such a file, with other answers; name another, or give --overwrite",
                "output-file",
            )
        with Journal(output, lines) as journal:
            if len(journal):
                print(f"octavo: resuming; {len(journal)} of {len(lines)} lines are done", file=sys.stderr)
            if len(journal) < len(lines):
                with address(arguments) as api:
                    _answer(lines, journal, api, arguments)
            journal.finish()
            print(f"octavo: {output} has an answer for each of {len(lines)} lines", file=sys.stderr)
    return 0


def _file(name: str, which: str) -> Path:
    if "://" in name:
        raise ConfigError(f"--{which} {name}: must be a local file; fetch or upload it with another program", which)
    path = Path(name)
    if path.is_dir():
        raise ConfigError(f"--{which} {name}: is a folder", which)
    return path


def _answer(lines: Lines, journal: Journal, api: Api, arguments: argparse.Namespace) -> None:
    from octavo.batch import Target, run
    from octavo.benchmarks.connection import Server

    if api.url.startswith("unix:"):
        raise ConfigError(f"--url {api.url}: a batch needs an address such as http://127.0.0.1:8000", "url")
    api.models()  # a server that is not there is told at once
    target = Target(Server.parse(api.url + api.prefix), api.key, arguments.max_concurrency)
    with _progress(len(lines), len(journal)) as seen:
        asyncio.run(run(lines, journal, target, seen))


@contextlib.contextmanager
def _progress(total: int, done: int) -> Iterator[Callable[[int], None]]:
    """Show how far the batch is, on stderr: a bar on a terminal, else a line now and then."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (TextColumn("lines"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[more]}"))
    bar = Progress(
        *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, disable=not console.is_terminal
    )
    task = bar.add_task("lines", total=total, completed=done, more="")
    failures, told_at = 0, time.monotonic()

    def seen(status: int) -> None:
        nonlocal done, failures, told_at
        done += 1
        failures += status != 200
        bar.update(task, completed=done, more=f"{failures} failed" if failures else "")
        if not console.is_terminal and time.monotonic() - told_at >= _TELL_S:
            told_at = time.monotonic()
            print(f"octavo: {done} of {total} lines, {failures} failed", file=sys.stderr, flush=True)

    with bar:
        yield seen
    if failures:
        print(f"octavo: {failures} of the lines that were answered now failed; 'error' says why", file=sys.stderr)
