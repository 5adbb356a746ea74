"""Conversations: each turn is sent with all that was said before, once the answer before it is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.benchmarks.datasets.random import random_lengths
from octavo.benchmarks.datasets.sample import Sample, Turn, oversample
from octavo.benchmarks.datasets.sharegpt import conversations
from octavo.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    from octavo.benchmarks.options import ServeOptions
    from octavo.benchmarks.tokenizer import Tokenizer

__all__ = ["multi_turn"]


def multi_turn(options: ServeOptions, tokenizer: Tokenizer, rng: np.random.Generator) -> list[Sample]:
    """Return --num-prompts conversations: random ones, or those of --dataset-path in the ShareGPT form."""
    if options.backend != "openai-chat":
        raise ConfigError(f"conversations need --backend openai-chat, not {options.backend}", "backend")
    if options.dataset_path is not None:
        return _recorded(options, tokenizer, rng)
    least = options.multi_turn_min_turns or options.multi_turn_num_turns
    most = options.multi_turn_max_turns or max(options.multi_turn_num_turns, least)
    if not 1 <= least <= most:
        raise ConfigError(f"--multi-turn-min-turns {least} must be from 1 to --multi-turn-max-turns {most}")
    prefix = tokenizer.random(rng, options.random_prefix_len)
    found = []
    for turns in rng.integers(least, most + 1, options.num_prompts).tolist():
        inputs, outputs = random_lengths(options, tokenizer, rng, turns)
        later = options.per_turn_input_len
        lengths = [inputs[0], *([later] * (turns - 1) if later else inputs[1:])]
        texts = [tokenizer.random(rng, length) for length in lengths]
        if prefix:
            texts[0] = f"{prefix} {texts[0]}"
            lengths[0] += options.random_prefix_len
        found.append(Sample(tuple(Turn(*turn) for turn in zip(texts, lengths, outputs, strict=True))))
    return found


def _recorded(options: ServeOptions, tokenizer: Tokenizer, rng: np.random.Generator) -> list[Sample]:
    found: list[Sample] = []
    most = options.multi_turn_max_turns
    for texts in conversations(options, rng):
        if len(found) == options.num_prompts:
            break
        pairs = list(zip(texts[::2], texts[1::2], strict=False))
        given = options.sharegpt_output_len
        turns = tuple(
            Turn(question, tokenizer.count(question), given or max(tokenizer.count(answer), 1))
            for question, answer in (pairs[:most] if most else pairs)
            if question
        )
        if len(turns) >= max(options.multi_turn_min_turns, 1):
            found.append(Sample(turns))
    return oversample(found, options.num_prompts, rng, repeat=not options.no_oversample)
