"""A few prefixes, each in front of many prompts: what a prefix cache is for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.benchmarks.datasets.sample import Sample, Turn
from octavo.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    from octavo.benchmarks.options import ServeOptions
    from octavo.benchmarks.tokenizer import Tokenizer

__all__ = ["prefix_repetition"]


def prefix_repetition(options: ServeOptions, tokenizer: Tokenizer, rng: np.random.Generator) -> list[Sample]:
    """Return --num-prompts // num-prefixes prompts for each of the prefixes, shuffled."""
    prefixes = options.prefix_repetition_num_prefixes
    each = options.num_prompts // max(prefixes, 1)
    if prefixes < 1 or each < 1:
        raise ConfigError(
            f"--prefix-repetition-num-prefixes {prefixes} must be from 1 to --num-prompts {options.num_prompts}",
            "prefix-repetition-num-prefixes",
        )
    length = options.prefix_repetition_prefix_len + options.prefix_repetition_suffix_len
    found = []
    for _ in range(prefixes):
        prefix = tokenizer.random(rng, options.prefix_repetition_prefix_len)
        for _ in range(each):
            text = f"{prefix} {tokenizer.random(rng, options.prefix_repetition_suffix_len)}"
            found.append(Sample((Turn(text, length, options.prefix_repetition_output_len),)))
    if not options.disable_shuffle:
        found = [found[i] for i in rng.permutation(len(found))]
    return found
