from __future__ import annotations

import numpy as np
import torch

from octavo.kernels.ref.logits import RefLogits
from octavo.kernels.ref.sample import RefSample
from octavo.wire.frontend import SamplingParams
from octavo.workers.sampling.sampler import Sampler

SEEDS = [0, 7, 2**63 + 5, 2**64 - 1]


def sampler() -> Sampler:
    s = Sampler(8, RefSample(), RefLogits(), "cpu")
    for slot, seed in enumerate(SEEDS):
        s.take(slot, SamplingParams(seed, 1, temperature=1.5), 1)
    s.take(4, SamplingParams(1, 1, temperature=0.0), 1)
    s.take(5, SamplingParams(1, 1, temperature=1.5, top_k=1), 1)
    return s


HISTORY = torch.zeros(8, 8, dtype=torch.int32)


def test_a_token_depends_on_seed_and_position_only() -> None:
    torch.manual_seed(0)
    logits = torch.randn(1, 500).expand(6, -1)
    s = sampler()
    slots, positions = np.arange(6), np.array([3, 3, 3, 3, 3, 3])
    first = s.draw(logits, slots, positions, HISTORY).tokens
    assert s.draw(logits, slots, positions, HISTORY).tokens.equal(first)
    assert len(set(first[:4].tolist())) > 1
    assert first[4] == first[5] == logits[0].argmax()
    order = np.array([5, 2, 0])
    assert s.draw(logits[:3], order, positions[:3], HISTORY).tokens.tolist() == [int(first[i]) for i in order]
    later = s.draw(logits, slots, positions + 1, HISTORY).tokens
    assert later[:4].tolist() != first[:4].tolist()


def test_a_slot_forgets_its_last_owner() -> None:
    s, logits = sampler(), torch.randn(1, 500)
    s.take(0, SamplingParams(0, 1, temperature=0.0), 1)
    assert s.draw(logits, np.array([0]), np.array([1]), HISTORY).tokens == logits.argmax()
