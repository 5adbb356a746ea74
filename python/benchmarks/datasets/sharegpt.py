"""Conversations of people, from a file in the ShareGPT form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.benchmarks.datasets.sample import Sample, Turn, oversample, read_json

if TYPE_CHECKING:
    import numpy as np

    from octavo.benchmarks.options import ServeOptions
    from octavo.benchmarks.tokenizer import Tokenizer

__all__ = ["conversations", "sharegpt"]

#: Which pairs are used, in tokens: the limits of every published figure with this data set.
MIN_TOKENS = 4
MAX_PROMPT_TOKENS = 1024
MAX_TOTAL_TOKENS = 2048


def conversations(options: ServeOptions, rng: np.random.Generator) -> list[list[str]]:
    """Return the texts of each conversation with two turns or more, shuffled unless told not to."""
    rows: Any = read_json(options.dataset_path, "sharegpt")
    found = [
        [str(turn.get("value", "")) for turn in row["conversations"]]
        for row in rows
        if isinstance(row, dict) and len(row.get("conversations") or ()) >= 2
    ]
    if not options.disable_shuffle:
        order = rng.permutation(len(found))
        found = [found[i] for i in order]
    return found


def sharegpt(options: ServeOptions, tokenizer: Tokenizer, rng: np.random.Generator) -> list[Sample]:
    """Return the first question of conversations, with answers as long as the recorded ones."""
    found: list[Sample] = []
    for question, answer, *_ in conversations(options, rng):
        if len(found) == options.num_prompts:
            break
        tokens = tokenizer.count(question) + tokenizer.special
        given = options.sharegpt_output_len
        output = tokenizer.count(answer) + tokenizer.special if given is None else given
        if tokens < MIN_TOKENS or (given is None and output < MIN_TOKENS):
            continue
        if tokens > MAX_PROMPT_TOKENS or tokens + output > MAX_TOTAL_TOKENS:
            continue
        found.append(Sample((Turn(question, tokens, output),)))
    return oversample(found, options.num_prompts, rng, repeat=not options.no_oversample)
