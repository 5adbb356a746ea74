"""`octavo models`: what can be served, what is on this machine, what a server serves."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from octavo.cli.api import Api
from octavo.cli.flags import RAW

__all__ = ["add_command", "local"]

_EXAMPLES = """\
examples:
  octavo models                              architectures, and models on this machine
  octavo models --url http://127.0.0.1:8000  the models of a running server
"""


def add_command(commands: Any) -> None:
    """Add the command to `octavo`'s subparsers."""
    command = commands.add_parser(
        "models",
        help="what can be served; what a server serves",
        description="List the architectures that octavo runs and the models on this machine, or a server's models.",
        usage="octavo models [FLAGS]",
        epilog=_EXAMPLES,
        **RAW,
    )
    command.add_argument("--url", metavar="URL", help="ask a running server")
    command.add_argument(
        "--api-key",
        metavar="KEY",
        default=os.environ.get("OPENAI_API_KEY", ""),
        help="the server's key (default: $OPENAI_API_KEY)",
    )
    command.set_defaults(parser=command, run=_run)


def local() -> Iterator[tuple[str, str, Path]]:
    """Yield (name to serve it by, architecture, folder) of each model in the Hub's cache that can be loaded."""
    import json

    from huggingface_hub.constants import HF_HUB_CACHE

    for repository in sorted(Path(HF_HUB_CACHE).glob("models--*")):
        for folder in sorted((repository / "snapshots").glob("*")):
            config = folder / "config.json"
            if config.is_file() and any(folder.glob("*.safetensors")):
                try:
                    architecture = json.loads(config.read_text(encoding="utf-8"))["architectures"][0]
                except (ValueError, KeyError, IndexError, TypeError, OSError):
                    continue
                yield repository.name.removeprefix("models--").replace("--", "/"), str(architecture), folder


def _run(arguments: argparse.Namespace) -> int:
    if arguments.url:
        for model in Api(arguments.url, arguments.api_key).models():
            length = model.get("max_model_len")
            print(f"{model.get('id')}" + (f"   context {length}" if length else ""))
        return 0
    from octavo.modelfiles.smollm2 import find
    from octavo.models.registry import ARCHITECTURES

    print("Architectures (`architectures` in config.json; docs/models.md):")
    for name in sorted(ARCHITECTURES):
        print(f"  {name}")
    print("\nOn this machine:")
    demo = find()
    print(f"  smollm2   {demo or 'not fetched yet: `octavo serve smollm2` does it (98 MB)'}")
    for name, architecture, _ in local():
        known = "" if architecture in ARCHITECTURES else "   (not supported)"
        print(f"  {name}   {architecture}{known}")
    return 0
