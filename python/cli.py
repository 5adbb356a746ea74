"""The command line: `octavo serve`, `octavo --version`."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from typing import NoReturn

from octavo import __version__
from octavo.config import Setting, build, settings
from octavo.errors import ConfigError, ModelError, OctavoError

__all__ = ["main", "parser"]

_SERVE_EXAMPLES = """\
examples:
  octavo serve ./SmolLM2-135M-Instruct                       a folder as Transformers saves it
  octavo serve model.Q4_1.gguf --served-model-name smol      one GGUF file, under a name of your own
  octavo serve ./model --port 0 --max-model-len 4096         a free port; shorter contexts
  octavo serve ./model --tensor-parallel-size 2              two workers share each layer

Then: curl http://127.0.0.1:8000/v1/chat/completions -H 'content-type: application/json' \\
        -d '{"model": "smol", "messages": [{"role": "user", "content": "Hello"}]}'
"""


class _Parser(argparse.ArgumentParser):
    """argparse, but an unknown flag names the nearest one and errors end without the usage lines."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}\nTry `{self.prog} --help`.", file=sys.stderr)
        raise SystemExit(2)

    def suggest(self, words: Sequence[str]) -> NoReturn:
        known = [option for action in self._actions for option in action.option_strings]
        word = words[0].split("=")[0]
        near = [name for name in known if name.startswith(word)] or difflib.get_close_matches(word, known, n=1)
        self.error(f"unknown argument {word}" + (f"; did you mean {near[0]}?" if near else ""))


def _add_setting(target: argparse._ArgumentGroup, setting: Setting) -> None:
    text = setting.help.replace("%", "%%")
    if setting.positional:
        target.add_argument(setting.name, metavar=setting.name.upper(), help=text)
        return
    if setting.default not in ((), ""):
        text += f" (default: {setting.shown})"
    if setting.switch:
        for name, value in ((setting.flag, "true"), (f"--no-{setting.flag[2:]}", "false")):
            shown = text if value == "true" else argparse.SUPPRESS
            target.add_argument(
                name, dest=setting.name, help=shown, action="store_const", const=value, default=argparse.SUPPRESS
            )
        return
    target.add_argument(
        setting.flag,
        dest=setting.name,
        metavar=setting.metavar,
        help=text,
        default=argparse.SUPPRESS,
        nargs="+" if setting.many else None,
    )


def parser() -> argparse.ArgumentParser:
    """Build the parser of all commands from the settings' one definition."""
    root = _Parser(prog="octavo", description="Serve large language models.", allow_abbrev=False)
    root.add_argument("--version", action="version", version=f"octavo {__version__}")
    commands = root.add_subparsers(dest="command", metavar="COMMAND", required=True)
    serve = commands.add_parser(
        "serve",
        help="serve a model over the OpenAI HTTP API",
        description="Serve a model over the OpenAI HTTP API. Ctrl-C stops it in order; a second Ctrl-C at once.",
        epilog=_SERVE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    groups: dict[str, argparse._ArgumentGroup] = {}
    for setting in settings():
        if setting.group not in groups:
            groups[setting.group] = serve.add_argument_group(setting.group.lower())
        _add_setting(groups[setting.group], setting)
    serve.set_defaults(parser=serve)
    commands.add_parser("bench", help="measure a server: latencies, throughput, start-up", add_help=False)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 0 done, 1 failed, 2 wrong usage, settings or model files."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["bench"]:
        from octavo.benchmarks.cli import main as bench  # its flags are many, and its own

        return bench(words[1:], _Parser)
    arguments, unknown = parser().parse_known_args(words)
    if unknown:
        arguments.parser.suggest(unknown)
    given = {name: value for name, value in vars(arguments).items() if name not in ("command", "parser")}
    try:
        config = build(given)
        from octavo.serve import serve  # not at the top: --help must not pay for the imports

        return serve(config)
    except (ConfigError, ModelError) as error:
        print(f"octavo: {error}", file=sys.stderr)
        return 2
    except OctavoError as error:
        print(f"octavo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
