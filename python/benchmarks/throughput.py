"""`octavo bench throughput`: how fast many requests are done when all are there at once, without a server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from octavo.errors import OctavoError

if TYPE_CHECKING:
    import argparse

__all__ = ["add_command", "figures", "table"]

_EXAMPLES = """\
examples:
  octavo bench throughput --model ./model --input-len 128 --output-len 64 --num-prompts 100
  octavo bench throughput --model ./model --num-prompts 500 --output-json throughput.json

Prompts are random token ids; end tokens do not end outputs. Flags and JSON keys are those of `vllm bench throughput`.
"""


def add_command(commands: Any, raw: dict[str, Any]) -> None:
    """Add `throughput` to the commands of `octavo bench`."""
    from octavo.benchmarks.offline import add_engine_flags, count

    parser: argparse.ArgumentParser = commands.add_parser(
        "throughput",
        help="tokens and requests per second of a large batch, without a server",
        description="Run many requests that are all there at once, without a server, and report the throughput.",
        usage="octavo bench throughput --model MODEL [FLAGS]",
        epilog=_EXAMPLES,
        **raw,
    )
    parser.add_argument(
        "--dataset-name", choices=("random",), default="random", help="random token ids, the one there is"
    )
    for flag, default, text in (
        ("--input-len", 1024, "tokens of each prompt"),
        ("--output-len", 128, "tokens of each output"),
        ("--num-prompts", 1000, "requests"),
    ):
        parser.add_argument(flag, type=count(1), default=default, metavar="N", help=f"{text} (default: {default})")
    parser.add_argument("--output-json", default=None, metavar="FILE", help="write the figures as JSON")
    add_engine_flags(parser)
    parser.set_defaults(run=_run, parser=parser)


def _run(given: dict[str, Any]) -> int:
    from octavo.benchmarks.offline import failed, load, random_prompts, write_json
    from octavo.llm import SamplingParams

    with load(given, given["input_len"] + given["output_len"]) as llm:
        rng = np.random.default_rng(int(given["seed"] or 0))
        prompts = random_prompts(rng, given["num_prompts"], given["input_len"], llm.vocab_size)
        params = SamplingParams(max_tokens=given["output_len"], ignore_eos=True)
        began = time.perf_counter()
        outputs = llm.generate(prompts, params)
        seconds = time.perf_counter() - began
    for message in failed(outputs):
        raise OctavoError(f"a request failed, so that the throughput would mean nothing: {message}")
    inputs = sum(len(output.prompt_token_ids) for output in outputs)
    drawn = sum(len(output.outputs[0].token_ids) for output in outputs)
    found = {name: given[name] for name in ("model", "input_len", "output_len")}
    found |= figures(seconds, len(outputs), inputs, drawn)
    print(table(found))
    write_json(given["output_json"], found)
    return 0


def figures(seconds: float, requests: int, input_tokens: int, output_tokens: int) -> dict[str, Any]:
    """Return the figures of a run under the keys of `vllm bench throughput`, and those of output tokens."""
    return {
        "elapsed_time": seconds,
        "num_requests": requests,
        "total_num_tokens": input_tokens + output_tokens,
        "total_output_tokens": output_tokens,
        "requests_per_second": requests / seconds,
        "tokens_per_second": (input_tokens + output_tokens) / seconds,
        "output_tokens_per_second": output_tokens / seconds,
    }


def table(found: dict[str, Any]) -> str:
    """Lay the figures out to be read."""
    return "\n".join(
        [
            f"{found['num_requests']} requests, {found['input_len']} tokens in, {found['output_len']} out",
            f"{found['elapsed_time']:>10.2f} s",
            f"{found['requests_per_second']:>10.2f} requests/s",
            f"{found['tokens_per_second']:>10.1f} tokens/s, in and out",
            f"{found['output_tokens_per_second']:>10.1f} output tokens/s",
        ]
    )
