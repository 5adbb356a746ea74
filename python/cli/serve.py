"""`octavo serve`."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from octavo.cli.flags import RAW, add_settings
from octavo.cli.retired import notes
from octavo.cli.sources import gather, strays
from octavo.config import ServeConfig, build, settings

__all__ = ["add_command", "configuration", "given_settings"]

_EXAMPLES = """\
examples:
  octavo serve smollm2                                       a small chat model, fetched once (98 MB)
  octavo serve ./SmolLM2-135M-Instruct                       a folder as Transformers saves it
  octavo serve model.Q4_1.gguf --served-model-name smol      one GGUF file, under a name of your own
  octavo serve ./model --port 0 --max-model-len 4096         a free port; shorter contexts
  octavo serve ./model --tensor-parallel-size 2              two workers share each layer
  octavo serve --config octavo.yaml                          settings from a file

A setting comes from the command line, else from its variable (OCTAVO_MAX_NUM_SEQS for --max-num-seqs), else from the
file of --config (max-num-seqs: 64), else it has its default. What vLLM's flags become: docs/from-vllm.md.

Then: curl http://127.0.0.1:8000/v1/chat/completions -H 'content-type: application/json' \\
        -d '{"messages": [{"role": "user", "content": "Hello"}]}'
"""


def add_command(commands: Any) -> None:
    """Add the command to `octavo`'s subparsers."""
    command = commands.add_parser(
        "serve",
        help="serve a model over the OpenAI HTTP API",
        description="Serve a model over the OpenAI HTTP API. Ctrl-C stops it in order; a second Ctrl-C at once.",
        usage="octavo serve MODEL [FLAGS]",
        epilog=_EXAMPLES,
        **RAW,
    )
    command.add_argument("--config", metavar="FILE", help="YAML file with settings by their flags' names")
    add_settings(command, model_required=False)
    command.set_defaults(parser=command, run=_run)


def given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what the command line says about settings, by field name, as typed."""
    names = {setting.name for setting in settings()}
    return {name: value for name, value in vars(arguments).items() if name in names}


def configuration(arguments: argparse.Namespace) -> ServeConfig:
    """Build the configuration from the command line, the environment and the file of --config.

    Raises ConfigError that names the flag, variable or key.
    """
    return build(gather(given_settings(arguments), os.environ, arguments.config))


def _run(arguments: argparse.Namespace) -> int:
    given = gather(given_settings(arguments), os.environ, arguments.config)
    config = build(given)
    if not config.model:
        arguments.parser.error("MODEL is missing: a model folder, a .gguf file, or smollm2")
    for line in [*notes(os.environ), *strays(os.environ)]:
        print(f"octavo: {line}", file=sys.stderr)
    # Imported here, for --help must not pay for it.
    if config.data_parallel_multi_port_external_lb:
        from octavo.replicas import serve_replicas

        return serve_replicas(config, given)
    from octavo.serve import serve

    return serve(config)
