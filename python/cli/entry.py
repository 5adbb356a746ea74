"""What `octavo` runs: one parser of all commands, one place that turns errors into exit codes."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Callable, Sequence

from octavo import __version__
from octavo.cli import chat, collect_env, complete, models, parse, run_batch, serve, top, warmup
from octavo.cli.flags import RAW, Parser, dashed
from octavo.errors import NO_ROOM, ConfigError, ModelError, OctavoError

__all__ = ["main", "parser"]

_EXAMPLES = """\
examples:
  octavo serve smollm2                     serve a small chat model, fetched once (98 MB)
  octavo serve ./my-model                  serve a model of your own
  octavo chat                              talk to it (in another terminal)
  octavo chat smollm2                      serve a model for as long as you talk to it
  octavo bench serve --help                measure a server

`octavo COMMAND --help` shows a command's flags, with defaults and examples.
"""


def parser() -> argparse.ArgumentParser:
    """Build the parser of all commands."""
    root = Parser(prog="octavo", description="Serve large language models.", epilog=_EXAMPLES, **RAW)
    root.add_argument("--version", action="version", version=f"octavo {__version__}")
    commands = root.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (serve, chat, complete, run_batch, models, top, parse, warmup):
        module.add_command(commands)
    commands.add_parser("bench", help="measure a server: latencies, throughput, start-up", add_help=False)
    collect_env.add_command(commands)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 0 done, 1 failed, 2 wrong usage, settings or model files."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["bench"]:
        from octavo.benchmarks.cli import main as bench  # its flags are many, and its own

        return bench(words[1:], Parser)
    root = parser()
    _know(root, words)
    arguments, unknown = root.parse_known_args(dashed(words))
    if unknown:
        arguments.parser.suggest(unknown)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except (ConfigError, ModelError) as error:
        print(f"octavo: {error}", file=sys.stderr)
        return 2
    except OctavoError as error:
        print(f"octavo: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `octavo ... | head`: whoever read has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        where = f" to {error.filename}" if error.filename else ""
        print(f"octavo: cannot write{where}: {error.strerror}. Free some space.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _know(root: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Leave with the nearest command where the first word is none."""
    actions = [action for action in root._actions if isinstance(action, argparse._SubParsersAction)]
    known = list(actions[0].choices)
    if words and not words[0].startswith("-") and words[0] not in known:
        near = difflib.get_close_matches(words[0], known, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
        root.error(f"unknown command {words[0]}{hint}")
