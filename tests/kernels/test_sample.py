"""Sampling: the noise's bits, kept sets, independence of neighbours, and the distribution."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.kernels.api import SampleInputs, SampleOps
from octavo.kernels.cpu import sample as cpu_sample
from octavo.kernels.cpu.sample import CpuSample
from octavo.kernels.ref.philox import gumbel, gumbel_of, philox
from octavo.kernels.ref.sample import RefSample, keep_top_k, keep_top_p
from tests import teacher

#: From the Random123 distribution, tests/kat_vectors: philox4x32 10: counter, key, output.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


IMPLEMENTATIONS: dict[str, SampleOps] = {"ref": RefSample(), "cpu": CpuSample()}
every = pytest.mark.parametrize("ops", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)


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


def test_noise_of_some_tokens_is_that_of_all() -> None:
    seed, position = torch.tensor([3, -1]), torch.tensor([5, 6])
    tokens = torch.tensor([[0, 3, 4, 999, 77], [998, 1, 2, 5, 0]])
    torch.testing.assert_close(gumbel_of(seed, position, tokens), gumbel(seed, position, 1000).gather(1, tokens))


@pytest.mark.parametrize("vocab", [12, 288, 1003])
def test_a_row_has_the_same_noise_and_token_among_others(vocab: int) -> None:
    """To the bit: what a request draws does not depend on who else is in the step."""
    seeds, positions = torch.arange(40) * 77, torch.arange(40) * 5
    together = gumbel(seeds, positions, vocab)
    assert all(torch.equal(gumbel(seeds[i : i + 1], positions[i : i + 1], vocab)[0], together[i]) for i in range(40))
    logits = torch.randn(40, vocab, generator=torch.Generator().manual_seed(vocab))
    temperature, zeros = torch.linspace(0.1, 2, 40), torch.zeros(40, dtype=torch.int64)
    inputs = SampleInputs(temperature, zeros, torch.ones(40), seeds, positions, False, False, False)
    picked = [
        CpuSample().sample(
            logits[i : i + 1],
            SampleInputs(
                temperature[i : i + 1],
                zeros[:1],
                torch.ones(1),
                seeds[i : i + 1],
                positions[i : i + 1],
                False,
                False,
                False,
            ),
        )
        for i in range(40)
    ]
    assert CpuSample().sample(logits, inputs).tolist() == torch.cat(picked).tolist()


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


@every
def test_draws_follow_the_distribution(ops: SampleOps) -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 1.5, -float("inf")])
    rows = 4_000
    tokens = ops.sample(logits.expand(rows, -1), inputs(rows, temperature=0.7))
    share = torch.bincount(tokens, minlength=6).double() / rows
    want = torch.softmax(logits.double() / 0.7, dim=0)
    assert (share - want).abs().max() < 6 * (0.25 / rows) ** 0.5
    assert share[5] == 0


@every
def test_a_row_does_not_depend_on_its_neighbours(ops: SampleOps) -> None:
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
    together = ops.sample(logits, mixed)
    for row in range(6):
        one = slice(row, row + 1)
        alone = SampleInputs(
            mixed.temperature[one], mixed.top_k[one], mixed.top_p[one], mixed.seed[one], mixed.position[one],
            all_greedy=bool(mixed.temperature[row] == 0), any_top_k=bool(mixed.top_k[row] > 0),
            any_top_p=bool(mixed.top_p[row] < 1),
        )  # fmt: skip
        assert ops.sample(logits[one], alone).tolist() == [int(together[row])]
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
def test_trap_ties_kept_sets_are_exact(scores: list[float], top_k: int, top_p: float) -> None:
    row = torch.tensor([scores], dtype=torch.float32)
    kept = keep_top_p(keep_top_k(row, torch.tensor([top_k])), torch.tensor([top_p]))
    assert set((kept[0] > -torch.inf).nonzero().flatten().tolist()) == sorted_kept(scores, top_k, np.float32(top_p))
    assert int(kept.argmax()) == int(row.argmax())


@pytest.mark.parametrize(("top_k", "top_p"), [(5, 1.0), (0, 0.6), (50, 0.9), (1, 0.1), (500, 0.99)])
def test_trap_ties_kept_sets_are_those_of_transformers(top_k: int, top_p: float) -> None:
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


@settings(max_examples=300, deadline=None)
@given(
    scores=st.lists(st.integers(-40, 40).map(lambda n: n / 8), min_size=1, max_size=40),
    rows=st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.5, 1.0, 3.0]),
            st.sampled_from([0, 1, 2, 3, 4, 5, 7, 20, 60]),
            st.sampled_from([0.05, 0.3, 0.6, 0.95, 1.0]),
        ),
        min_size=1,
        max_size=5,
    ),
    width=st.sampled_from([1, 4, 16, 1024]),
)
def test_the_fast_path_draws_what_the_reference_draws(
    scores: list[float], rows: list[tuple[float, int, float]], width: int
) -> None:
    """With ties, kept sets that end at, before and behind the width, and rows that fall back."""
    count = len(rows)
    temperature, top_k, top_p = zip(*rows, strict=True)
    some = SampleInputs(
        torch.tensor(temperature),
        torch.tensor(top_k),
        torch.tensor(top_p),
        torch.arange(count),
        torch.arange(count) + 9,
        all_greedy=not any(temperature),
        any_top_k=any(top_k),
        any_top_p=min(top_p) < 1,
    )
    logits = torch.tensor([scores], dtype=torch.float32).expand(count, -1)
    before, cpu_sample._WIDTH = cpu_sample._WIDTH, width
    try:
        assert CpuSample().sample(logits, some).tolist() == RefSample().sample(logits, some).tolist()
    finally:
        cpu_sample._WIDTH = before


def test_the_fast_path_on_a_large_vocabulary() -> None:
    torch.manual_seed(2)
    logits = (torch.randn(12, 49152) * 3).to(torch.bfloat16).float()  # with many ties, as bf16 logits have
    for top_k, top_p in ((0, 0.9), (40, 1.0), (40, 0.5), (2000, 0.999), (0, 1.0), (5000, 1.0)):
        want = RefSample().sample(logits, inputs(12, 0.8, top_k, top_p))
        assert CpuSample().sample(logits, inputs(12, 0.8, top_k, top_p)).equal(want)
