"""Requests for parity tests: mixed lengths, staggered arrival, shared prefixes."""

from __future__ import annotations

import random

from tests.parity.engine import Ask

__all__ = ["mixed"]


def mixed(vocab: int, count: int, max_tokens: int, longest: int, seed: int = 0, draws: bool = True) -> list[Ask]:
    """Return `count` requests of 1 … `longest` prompt tokens; a third share one of four prefixes.

    With `draws` a third sample, with top-k, top-p, both or neither.
    """
    rng = random.Random(seed)
    words = range(3, vocab)
    prefixes = [[rng.choice(words) for _ in range(longest // 2)] for _ in range(4)]
    asks = []
    for number in range(count):
        length = rng.randint(1, longest) if number % 3 else rng.randint(1, longest // 2)
        prompt = [rng.choice(words) for _ in range(length)]
        if number % 3 == 0:
            prompt = prefixes[number // 3 % 4] + prompt
        ask = Ask(prompt, max_tokens, arrives=number * 2, seed=rng.getrandbits(64))
        if draws and number % 3 == 1:
            kind = number // 3 % 4
            top_k, top_p = ((0, 1.0), (20, 1.0), (0, 0.9), (40, 0.8))[kind]
            ask = Ask(prompt, max_tokens, 0.8, top_k, top_p, ask.seed, ask.arrives)
        asks.append(ask)
    return asks
