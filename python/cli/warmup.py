"""`octavo warmup`: start an engine once, so that what the first start of a server compiles is there already."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from octavo.cli.flags import RAW, add_settings
from octavo.cli.serve import configuration

if TYPE_CHECKING:
    import argparse

__all__ = ["add_command"]

_EXAMPLES = """\
examples:
  octavo warmup ./model                                 on the machine, or into the image, that will serve it
  TRITON_CACHE_DIR=/cache octavo warmup ./model         where Triton keeps compiled kernels; ~/.triton otherwise

Take the flags that the server will get: kernels depend on the model's sizes, --dtype, --tensor-parallel-size and the
kind of GPU. Weights are made at random, so config.json and the tokenizer are enough.
"""


def add_command(commands: Any) -> None:
    """Add the command to `octavo`'s subparsers."""
    command = commands.add_parser(
        "warmup",
        help="compile a model's kernels before a server needs them",
        description="Start an engine with random weights and stop it: later starts find its kernels compiled.",
        usage="octavo warmup MODEL [FLAGS]",
        epilog=_EXAMPLES,
        **RAW,
    )
    command.add_argument("--config", metavar="FILE", help="YAML file with settings by their flags' names")
    add_settings(command, model_required=False)
    command.set_defaults(parser=command, run=_run)


def _run(arguments: argparse.Namespace) -> int:
    config = dataclasses.replace(configuration(arguments), load_format="dummy")
    if not config.model:
        arguments.parser.error("MODEL is missing: a model folder or a .gguf file")
    from octavo.llm.model import LoadedModel  # not at the top: --help must not pay for the imports

    began = time.monotonic()
    model = LoadedModel(config)
    try:
        info = model.engine.ready.result()
    finally:
        model.close()
    print(f"{config.model} is warm after {time.monotonic() - began:.1f} s; its engine took {info.startup_ms / 1e3:.1f}")
    return 0
