"""Prompts of your own: a JSON Lines file with `prompt` and, if you like, `output_tokens` in each line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.benchmarks.datasets.sample import Sample, Turn, oversample, read_json_lines
from octavo.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    from octavo.benchmarks.options import ServeOptions
    from octavo.benchmarks.tokenizer import Tokenizer

__all__ = ["custom"]


def custom(options: ServeOptions, tokenizer: Tokenizer, rng: np.random.Generator) -> list[Sample]:
    """Return the file's prompts, shuffled unless told not to; all of them if --num-prompts is 0.

    For a completions API the prompt goes through the chat template, if the tokenizer has one, unless
    --skip-chat-template; a chat API has its own.
    """
    rows = read_json_lines(options.dataset_path, "custom")
    if not options.disable_shuffle:
        rows = [rows[i] for i in rng.permutation(len(rows))]
    count = options.num_prompts if options.num_prompts > 0 else len(rows)
    render = options.backend != "openai-chat" and not options.skip_chat_template
    found = []
    for row in rows[:count]:
        text = row.get("prompt")
        if not isinstance(text, str):
            raise ConfigError(
                f"--dataset-path {options.dataset_path}: a line has no text under `prompt`", "dataset-path"
            )
        if render:
            text = tokenizer.chat(text, **(options.chat_template_kwargs or {})) or text
        output = options.custom_output_len
        if output < 0:
            output = row.get("output_tokens", 0)
            if not isinstance(output, int) or output < 1:
                raise ConfigError(
                    f"--custom-output-len -1 needs `output_tokens` in every line of {options.dataset_path}",
                    "custom-output-len",
                )
        found.append(Sample((Turn(text, tokenizer.count(text) + tokenizer.special, output),)))
    return oversample(found, count, rng, repeat=not options.no_oversample)
