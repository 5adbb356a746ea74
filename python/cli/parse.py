"""`octavo parse`: what the parser of reasoning and tool calls makes of a model's text, for people who debug a model."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.cli.flags import RAW
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo_native import Event

__all__ = ["add_command"]

_EXAMPLES = """\
examples:
  octavo parse --tool hermes < answer.txt
  octavo parse --tool qwen3_coder --reasoning qwen3 --start reasoning --tools tools.json < answer.txt
  octavo parse --tool mine --format-file mine.toml --pieces 1 < answer.txt    a format of your own, letter by letter

A line is an event: its kind, then what it brings. However the text is cut, the events joined are the same.
"""

_FIELDS = ("index", "name", "id", "reason", "text")


def add_command(commands: Any) -> None:
    """Add the command to `octavo`'s subparsers."""
    command = commands.add_parser(
        "parse",
        help="show what a parser makes of a model's text",
        description="Read a model's text from stdin and print the events that the parser makes of it.",
        usage="octavo parse [FLAGS] < TEXT",
        epilog=_EXAMPLES,
        **RAW,
    )
    command.add_argument("--tool", metavar="NAME", help="format of calls, as in --tool-call-parser (docs/parser.md)")
    command.add_argument("--reasoning", metavar="NAME", help="format of reasoning, as in --reasoning-parser")
    command.add_argument("--tools", metavar="FILE", type=Path, help="the request's tools, a JSON list; gives types")
    command.add_argument(
        "--tool-choice", metavar="CHOICE", default="auto", help="auto, required or none (default: auto)"
    )
    command.add_argument(
        "--start", metavar="WHERE", help="content, reasoning or the end of the prompt; default: what the format says"
    )
    command.add_argument("--no-parallel", action="store_true", help="one call at most")
    command.add_argument("--finish", metavar="REASON", default="stop", help="stop, length or abort (default: stop)")
    command.add_argument(
        "--format-file", metavar="PATH", type=Path, nargs="+", action="extend", default=[], help="further formats"
    )
    command.add_argument("--pieces", metavar="N", type=int, default=0, help="feed N letters at a time (default: all)")
    command.add_argument("--json", action="store_true", help="print JSON objects")
    command.set_defaults(parser=command, run=_run)


def _run(arguments: argparse.Namespace) -> int:
    import octavo_native  # not at the top: --help must not pay for it

    tools = None if arguments.tools is None else _read(arguments.tools)
    text = sys.stdin.read()
    try:
        parser = octavo_native.Parser(
            arguments.tool,
            arguments.reasoning,
            tools,
            arguments.start,
            arguments.tool_choice,
            parallel=not arguments.no_parallel,
            format_files=arguments.format_file,
        )
        for piece in _pieces(text, arguments.pieces):
            _show(parser.feed(piece), arguments.json)
        _show(parser.finish(arguments.finish), arguments.json)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return 0


def _read(path: Path) -> Any:
    try:
        tools = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--tools {path}: {error.strerror}", "tools") from None
    except ValueError as error:
        raise ConfigError(f"--tools {path}: no JSON: {error}", "tools") from None
    if not isinstance(tools, list):
        raise ConfigError(f"--tools {path}: must hold a JSON list of tools", "tools")
    return tools


def _pieces(text: str, size: int) -> Iterator[str]:
    step = size if size > 0 else max(len(text), 1)
    return (text[at : at + step] for at in range(0, len(text), step))


def _show(events: Sequence[Event], as_json: bool) -> None:
    for event in events:
        fields = {name: value for name in _FIELDS if (value := getattr(event, name)) is not None}
        if as_json:
            print(json.dumps({"kind": event.kind, **fields}, ensure_ascii=False))
            continue
        quoted = [
            json.dumps(value, ensure_ascii=False) if name == "text" else str(value) for name, value in fields.items()
        ]
        print(f"{event.kind:<9}", *quoted)
