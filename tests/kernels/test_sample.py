"""Sampling: the noise's bits, kept sets, independence of neighbours, and the distribution."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.kernels.api import SampleInputs
from octavo.kernels.ref.philox import gumbel, philox
from octavo.kernels.ref.sample import RefSample, keep_top_k, keep_top_p
from tests import teacher

#: From the Random123 distribution, tests/kat_vectors: philox4x32 10: counter, key, output.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "output"), KNOWN)
def test_philox_gives_the_known_vectors(counter: str, key: str, output: str) -> None:
    c0, c1, c2, c3 = (torch.tensor([word]) for word in words(counter))
    k0, k1 = (torch.tensor([word]) for word in words(key))
    assert [int(word) for word in philox((c0, c1, c2, c3), (k0, k1))] == words(output)
    assert teacher.philox(np.array(words(counter), dtype=np.uint32), np.array(words(key))).tolist() == words(output)


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**63, 2**64 - 1, 0x123456789ABCDEF0])
@pytest.mark.parametrize("position", [0, 1, 77, 2**31, 2**33 + 5])
def test_noise_equals_an_independent_implementation(seed: int, position: int) -> None:
    bits = seed - 2**64 if seed >= 2**63 else seed
    ours = gumbel(torch.tensor([bits]), torch.tensor([position]), 1003)[0]
    assert ours.dtype == torch.float32
    np.testing.assert_allclose(ours.numpy(), teacher.gumbel(seed, position, 1003), rtol=2e-6, atol=2e-6)


def test_noise_is_finite_and_standard_gumbel() -> None:
    noise = gumbel(torch.arange(64), torch.arange(64), 16384).flatten().double()
    assert torch.isfinite(noise).all()
    # Mean is Euler's constant, variance pi^2 / 6; the bounds are six standard errors wide.
    assert abs(float(noise.mean()) - 0.5772156649) < 6 * 1.2825 / len(noise) ** 0.5
    assert abs(float(noise.var()) - 1.6449340668) < 0.02
    below = float((noise < 0.36651292).double().mean())  # the median, -log(log 2)
    assert abs(below - 0.5) < 6 * 0.5 / len(noise) ** 0.5


def inputs(rows: int, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> SampleInputs:
    return SampleInputs(
        temperature=torch.full((rows,), temperature),
        top_k=torch.full((rows,), top_k),
        top_p=torch.full((rows,), top_p),
        seed=torch.arange(rows),
        position=torch.full((rows,), 5),
        all_greedy=temperature == 0,
        any_top_k=top_k > 0,
        any_top_p=top_p < 1,
    )


def test_draws_follow_the_distribution() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 1.5, -float("inf")])
    rows = 40_000
    tokens = RefSample().sample(logits.expand(rows, -1), inputs(rows, temperature=0.7))
    share = torch.bincount(tokens, minlength=6).double() / rows
    want = torch.softmax(logits.double() / 0.7, dim=0)
    assert (share - want).abs().max() < 6 * (0.25 / rows) ** 0.5
    assert share[5] == 0


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    torch.manual_seed(0)
    logits = torch.randn(6, 301) * 3
    mixed = SampleInputs(
        temperature=torch.tensor([0.0, 1.0, 0.5, 2.0, 0.0, 1.0]),
        top_k=torch.tensor([0, 5, 0, 40, 3, 0]),
        top_p=torch.tensor([1.0, 1.0, 0.5, 0.9, 0.5, 1.0]),
        seed=torch.tensor([1, 2, 3, 4, 5, -1]),
        position=torch.tensor([9, 9, 8, 7, 6, 5]),
        all_greedy=False,
        any_top_k=True,
        any_top_p=True,
    )
    together = RefSample().sample(logits, mixed)
    for row in range(6):
        one = slice(row, row + 1)
        alone = SampleInputs(
            mixed.temperature[one], mixed.top_k[one], mixed.top_p[one], mixed.seed[one], mixed.position[one],
            all_greedy=bool(mixed.temperature[row] == 0), any_top_k=bool(mixed.top_k[row] > 0),
            any_top_p=bool(mixed.top_p[row] < 1),
        )  # fmt: skip
        assert RefSample().sample(logits[one], alone).tolist() == [int(together[row])]
    assert together[0] == logits[0].argmax()
    assert together[4] == logits[4].argmax()


def sorted_kept(scores: list[float], top_k: int, top_p: float) -> set[int]:
    """The definition, by sorting: ties stay together."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    if 0 < top_k < len(scores):
        order = [i for i in order if scores[i] >= scores[order[top_k - 1]]]
    if top_p < 1:
        mass = np.exp(np.array([scores[i] for i in order], dtype=np.float64) - scores[order[0]])
        mass /= mass.sum()
        greater = {i: sum(m for m, j in zip(mass, order, strict=True) if scores[j] > scores[i]) for i in order}
        order = [i for i in order if greater[i] < top_p]
    return set(order)


@settings(max_examples=200, deadline=None)
@given(
    scores=st.lists(st.integers(-40, 40).map(lambda n: n / 8), min_size=1, max_size=30),
    top_k=st.integers(0, 32),
    top_p=st.sampled_from([0.01, 0.1, 0.3, 0.5, 0.77, 0.9, 0.999, 1.0]),
)
def test_kept_sets_are_exact(scores: list[float], top_k: int, top_p: float) -> None:
    row = torch.tensor([scores], dtype=torch.float32)
    kept = keep_top_p(keep_top_k(row, torch.tensor([top_k])), torch.tensor([top_p]))
    assert set((kept[0] > -torch.inf).nonzero().flatten().tolist()) == sorted_kept(scores, top_k, np.float32(top_p))
    assert int(kept.argmax()) == int(row.argmax())


@pytest.mark.parametrize(("top_k", "top_p"), [(5, 1.0), (0, 0.6), (50, 0.9), (1, 0.1), (500, 0.99)])
def test_kept_sets_are_those_of_transformers(top_k: int, top_p: float) -> None:
    from transformers import TopKLogitsWarper, TopPLogitsWarper

    torch.manual_seed(1)
    rows = torch.randn(20, 400) * 4
    want = rows
    if top_k:
        want = TopKLogitsWarper(top_k)(None, want)
    if top_p < 1:
        want = TopPLogitsWarper(top_p)(None, want)
    got = keep_top_p(keep_top_k(rows, torch.full((20,), top_k)), torch.full((20,), top_p))
    assert torch.equal(got, want)
