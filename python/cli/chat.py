"""`octavo chat`: a conversation in the terminal."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from octavo.cli.flags import RAW
from octavo.cli.server import add_flags, address
from octavo.errors import OctavoError

if TYPE_CHECKING:
    from octavo.cli.api import Api

__all__ = ["Chat", "add_command"]

_EXAMPLES = """\
examples:
  octavo chat                                    talk to the server at http://127.0.0.1:8000
  octavo chat smollm2                            serve a small model for as long as you talk to it
  octavo chat ./model --dtype float32            the same with a folder; all flags of `octavo serve` are taken
  octavo chat -q "What is an octavo?"            one question, one answer
  git diff | octavo chat -q "Review this diff"   what is piped in comes after the question

While you talk: /help, /reset, /system TEXT, /exit. Ctrl-C ends an answer, Ctrl-D the conversation.
"""
_HELP = "/reset forgets the conversation; /system TEXT sets the system message; /exit, or Ctrl-D, leaves"


def add_command(commands: Any) -> None:
    """Add the command to `octavo`'s subparsers."""
    command = commands.add_parser(
        "chat",
        help="talk to a running server, or to MODEL",
        description="Talk to a running server, or start one on MODEL for as long as you talk to it.",
        usage="octavo chat [MODEL] [FLAGS]",
        epilog=_EXAMPLES,
        **RAW,
    )
    group = command.add_argument_group("conversation")
    group.add_argument("-q", "--quick", metavar="TEXT", help="ask this one question, print the answer, leave")
    group.add_argument("--system-prompt", metavar="TEXT", help="first message of the conversation")
    group.add_argument("--max-tokens", metavar="N", type=int, help="longest answer in tokens (default: as it fits)")
    group.add_argument(
        "--temperature", metavar="T", type=float, help="0: always the likeliest token (default: the model's)"
    )
    group.add_argument("--stats", action="store_true", help="after each answer: tokens, TTFT, tokens/s")
    add_flags(command)
    command.set_defaults(parser=command, run=_run)


class Chat:
    """The messages so far, and how one more turn is had. Reasoning is shown dimmed and not sent back."""

    def __init__(self, api: Api, model: str, console: Console, settings: dict[str, Any]) -> None:
        self._api = api
        self._model = model
        self._console = console
        self._settings = settings
        self.messages: list[dict[str, str]] = []

    def system(self, text: str) -> None:
        """Set the system message; an empty one removes it."""
        self.messages = [one for one in self.messages if one["role"] != "system"]
        if text:
            self.messages.insert(0, {"role": "system", "content": text})

    def reset(self) -> None:
        """Forget all but the system message."""
        self.messages = [one for one in self.messages if one["role"] == "system"]

    def turn(self, text: str, stats: bool = False) -> None:
        """Send a message and print the answer as it comes; Ctrl-C ends it, and keeps what came.

        Raises OctavoError where the server refuses or breaks off: the message is then forgotten.
        """
        self.messages.append({"role": "user", "content": text})
        body = {"model": self._model, "messages": self.messages, "stream_options": {"include_usage": True}}
        pieces: list[str] = []
        began = time.perf_counter()
        stream = self._api.stream("/v1/chat/completions", body | self._settings)
        try:
            with contextlib.closing(stream):  # type: ignore[type-var]
                usage, first = self._print(stream, pieces)
        except KeyboardInterrupt:
            self._console.print(Text(" (ended)", style="dim"))
            usage, first = None, None
        except OctavoError:
            self.messages.pop()
            raise
        self.messages.append({"role": "assistant", "content": "".join(pieces)})
        if stats and usage is not None and first is not None:
            self._console.print(Text(_figures(usage, first - began, time.perf_counter() - first), style="dim"))

    def _print(self, stream: Iterator[dict[str, Any]], pieces: list[str]) -> tuple[dict[str, Any] | None, float | None]:
        usage: dict[str, Any] | None = None
        first: float | None = None
        thinking = False
        for chunk in stream:
            usage = chunk.get("usage") or usage
            delta = chunk["choices"][0].get("delta", {}) if chunk.get("choices") else {}
            reasoning, content = delta.get("reasoning") or "", delta.get("content") or ""
            if first is None and (reasoning or content):
                first = time.perf_counter()
            if reasoning:
                self._write(reasoning, "dim italic")
                thinking = True
            if content:
                if thinking:
                    self._write("\n\n", "")
                    thinking = False
                self._write(content, "")
                pieces.append(content)
            for call in delta.get("tool_calls") or ():
                function = call.get("function", {})
                self._write((function.get("name") or "") + (function.get("arguments") or ""), "cyan")
        self._console.print()
        return usage, first

    def _write(self, text: str, style: str) -> None:
        self._console.print(Text(text, style=style), end="", soft_wrap=True)
        self._console.file.flush()


def _figures(usage: dict[str, Any], ttft_s: float, rest_s: float) -> str:
    tokens = usage.get("completion_tokens", 0)
    rate = f", {(tokens - 1) / rest_s:.1f} tokens/s" if tokens > 1 and rest_s > 0 else ""
    return f"{usage.get('prompt_tokens', 0)} tokens in, {tokens} out, TTFT {1000 * ttft_s:.0f} ms{rate}"


def _run(arguments: argparse.Namespace) -> int:
    console = Console(highlight=False)
    sampling = {"max_tokens": arguments.max_tokens, "temperature": arguments.temperature}
    settings = {name: value for name, value in sampling.items() if value is not None}
    with address(arguments) as api:
        chat = Chat(api, api.model(arguments.model_name), console, settings)
        chat.system(arguments.system_prompt or "")
        if arguments.quick:
            piped = "" if sys.stdin.isatty() else sys.stdin.read()
            chat.turn("\n\n".join(part for part in (arguments.quick, piped.strip()) if part), arguments.stats)
            return 0
        _converse(chat, console, arguments.stats)
    return 0


def _converse(chat: Chat, console: Console, stats: bool) -> None:
    """Read lines until the end of the input."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (line editing and history for input)
    console.print(Text(f"{_HELP}.", style="dim"))
    while True:
        try:
            line = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            console.print()
            return
        if line in ("/exit", "/quit"):
            return
        if line == "/reset":
            chat.reset()
        elif line == "/system" or line.startswith("/system "):
            chat.system(line.removeprefix("/system").strip())
        elif line.startswith("/"):
            console.print(Text(_HELP, style="dim"))
        elif line:
            try:
                chat.turn(line, stats)
            except OctavoError as error:
                console.print(Text(f"octavo: {error}", style="red"))
