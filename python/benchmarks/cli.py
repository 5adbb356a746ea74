"""`octavo bench`: its commands and their flags."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from octavo.benchmarks import latency, startup, sweep, throughput
from octavo.benchmarks.options import add_flags, from_namespace
from octavo.errors import ConfigError, OctavoError

__all__ = ["main"]

_SERVE_EXAMPLES = """\
examples:
  octavo bench serve --backend openai-chat --base-url http://127.0.0.1:8000 --num-prompts 100
  octavo bench serve --model NAME --dataset-name random --random-input-len 128 --random-output-len 64 --request-rate 4
  octavo bench serve --dataset-name sharegpt --dataset-path FILE.json --max-concurrency 16 --save-result --plot run.html

The flags are those of `vllm bench serve`. What each figure means: docs/benchmarks.md.
"""


def _parser(make: Callable[..., argparse.ArgumentParser]) -> argparse.ArgumentParser:
    root = make(prog="octavo bench", description="Measure a server, or the engine without one.", allow_abbrev=False)
    commands = root.add_subparsers(dest="command", metavar="COMMAND", required=True)
    raw: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
    serve = commands.add_parser(
        "serve",
        help="throughput and latencies of a running server under a load",
        description="Send requests to any OpenAI-compatible server and report throughput and latencies.",
        epilog=_SERVE_EXAMPLES,
        usage="octavo bench serve [FLAGS]",
        **raw,
    )
    add_flags(serve)
    serve.set_defaults(run=_serve, parser=serve)
    for module in (sweep, throughput, latency, startup):
        module.add_command(commands, raw)
    return root


def _serve(given: dict[str, Any]) -> int:
    from octavo.benchmarks.serve import serve

    return serve(from_namespace(given))


def main(argv: Sequence[str], make: Callable[..., argparse.ArgumentParser] = argparse.ArgumentParser) -> int:
    """Run `octavo bench` and return the exit code: 0 done, 1 failed or too many failed requests, 2 wrong usage.

    `make` builds parsers. Underscores in flags mean dashes.
    """
    words = [_dashed(word) for word in argv]
    arguments, unknown = _parser(make).parse_known_args(words)
    if unknown:
        suggest = getattr(arguments.parser, "suggest", None)
        if suggest is not None:
            suggest(unknown)
        arguments.parser.error(f"unknown argument {unknown[0]}")
    given = {name: value for name, value in vars(arguments).items() if name not in ("command", "run", "parser")}
    try:
        code: int = arguments.run(given)
    except OctavoError as error:
        print(f"octavo: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        print("octavo: stopped; nothing was reported", file=sys.stderr)
        return 130
    return code


def _dashed(word: str) -> str:
    if not word.startswith("--"):
        return word
    name, mark, value = word.partition("=")
    return name.replace("_", "-") + mark + value
