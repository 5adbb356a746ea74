"""Where the prompts come from. A data set is one file with one function, listed in `DATASETS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from octavo.benchmarks.datasets.custom import custom
from octavo.benchmarks.datasets.multi_turn import multi_turn
from octavo.benchmarks.datasets.prefix_repetition import prefix_repetition
from octavo.benchmarks.datasets.random import random
from octavo.benchmarks.datasets.sample import Sample, Turn
from octavo.benchmarks.datasets.sharegpt import sharegpt

if TYPE_CHECKING:
    from octavo.benchmarks.options import ServeOptions
    from octavo.benchmarks.tokenizer import Tokenizer

__all__ = ["DATASETS", "Sample", "Turn", "samples"]

#: Name of --dataset-name -> samples. Each draws from the generator it is given and from nothing else.
DATASETS: dict[str, Callable[[ServeOptions, Tokenizer, np.random.Generator], list[Sample]]] = {
    "random": random,
    "sharegpt": sharegpt,
    "prefix_repetition": prefix_repetition,
    "multi-turn": multi_turn,
    "custom": custom,
}


def samples(options: ServeOptions, tokenizer: Tokenizer) -> list[Sample]:
    """Return the samples of a run, the same for the same options. Raises ConfigError."""
    name = "multi-turn" if options.multi_turn else options.dataset_name
    return DATASETS[name](options, tokenizer, np.random.default_rng(options.seed))
