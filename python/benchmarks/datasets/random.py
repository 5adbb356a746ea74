"""Random text of a given length, with or without a prefix that all prompts share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.benchmarks.datasets.sample import Sample, Turn, spread
from octavo.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    from octavo.benchmarks.options import ServeOptions
    from octavo.benchmarks.tokenizer import Tokenizer

__all__ = ["random", "random_lengths"]


def random_lengths(
    options: ServeOptions, tokenizer: Tokenizer, rng: np.random.Generator, count: int
) -> tuple[list[int], list[int]]:
    """Draw `count` input lengths (without prefix and special tokens) and output lengths. Raises ConfigError."""
    ratio, output_ratio = options.random_range_ratio
    for given in (ratio, output_ratio):
        if not 0 <= given < 1:
            raise ConfigError(f"--random-range-ratio {given} must be at least 0 and less than 1", "random-range-ratio")
    inner = max(options.random_input_len - tokenizer.special, 0)
    if options.random_prefix_len + int(inner * (1 - ratio)) < 1:
        raise ConfigError(
            f"--random-input-len {options.random_input_len} leaves no token for a prompt: the tokenizer adds "
            f"{tokenizer.special}, the range ratio is {ratio}",
            "random-input-len",
        )
    return spread(rng, inner, ratio, 0, count), spread(rng, options.random_output_len, output_ratio, 1, count)


def random(options: ServeOptions, tokenizer: Tokenizer, rng: np.random.Generator) -> list[Sample]:
    """Return --num-prompts random prompts: prefix of --random-prefix-len, then --random-input-len of their own."""
    inputs, outputs = random_lengths(options, tokenizer, rng, options.num_prompts)
    prefix = tokenizer.random(rng, options.random_prefix_len)
    found = []
    for length, output in zip(inputs, outputs, strict=True):
        text = prefix + (" " if prefix else "") + tokenizer.random(rng, length)
        found.append(Sample((Turn(text, options.random_prefix_len + length, output),)))
    return found
