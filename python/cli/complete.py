"""`octavo complete`: text that goes on."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING, Any

from octavo.cli.flags import RAW
from octavo.cli.server import add_flags, address
from octavo.errors import OctavoError

if TYPE_CHECKING:
    from octavo.cli.api import Api

__all__ = ["add_command", "complete"]

_EXAMPLES = """\
examples:
  octavo complete -q "Once upon a time" --max-tokens 64      one text
  octavo complete                                            line by line, until Ctrl-D
  octavo complete ./model -q "def main():" --temperature 0   serve a model for this one text
  octavo complete < prompt.txt                               a file
"""


def add_command(commands: Any) -> None:
    """Add the command to `octavo`'s subparsers."""
    command = commands.add_parser(
        "complete",
        help="let a running server, or MODEL, go on with a text",
        description="Let a running server, or one started on MODEL, go on with a text. No chat template is applied.",
        usage="octavo complete [MODEL] [FLAGS]",
        epilog=_EXAMPLES,
        **RAW,
    )
    group = command.add_argument_group("text")
    group.add_argument("-q", "--quick", metavar="TEXT", help="go on with this text and leave")
    group.add_argument("--max-tokens", metavar="N", type=int, default=128, help="tokens to add (default: 128)")
    group.add_argument(
        "--temperature", metavar="T", type=float, help="0: always the likeliest token (default: the model's)"
    )
    add_flags(command)
    command.set_defaults(parser=command, run=_run)


def complete(api: Api, model: str, text: str, settings: dict[str, Any]) -> None:
    """Print how the text goes on, as it comes; Ctrl-C ends it. Raises OctavoError."""
    stream = api.stream("/v1/completions", {"model": model, "prompt": text} | settings)
    with contextlib.suppress(KeyboardInterrupt), contextlib.closing(stream):  # type: ignore[type-var]
        for chunk in stream:
            if chunk.get("choices"):
                print(chunk["choices"][0].get("text", ""), end="", flush=True)
    print(flush=True)


def _run(arguments: argparse.Namespace) -> int:
    settings: dict[str, Any] = {"max_tokens": arguments.max_tokens}
    if arguments.temperature is not None:
        settings["temperature"] = arguments.temperature
    with address(arguments) as api:
        model = api.model(arguments.model_name)
        if arguments.quick is not None:
            complete(api, model, arguments.quick, settings)
        elif not sys.stdin.isatty():
            complete(api, model, sys.stdin.read(), settings)
        else:
            _lines(api, model, settings)
    return 0


def _lines(api: Api, model: str, settings: dict[str, Any]) -> None:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (line editing and history for input)
    while True:
        try:
            line = input("> ")
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if line.strip():
            try:
                complete(api, model, line, settings)
            except OctavoError as error:
                print(f"octavo: {error}", file=sys.stderr)
