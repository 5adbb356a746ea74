"""Sampling against `ref`: the same noise, the same kept sets, the same tokens."""

from __future__ import annotations

import pytest
import torch

from octavo.kernels.api import SampleInputs
from octavo.kernels.ref.philox import gumbel
from octavo.kernels.ref.sample import RefSample, keep_top_k, keep_top_p
from octavo.kernels.triton import top_kp
from octavo.kernels.triton.sample import TritonSample
from octavo.kernels.triton.top_kp import thresholds

VOCABS = [37, 1100, pytest.param(151936, marks=pytest.mark.gpu)]


def inputs(rows: int, device: torch.device, greedy: bool = False, top_k: bool = False, top_p: bool = False):
    temperature = torch.rand(rows) + 0.3
    temperature[::3] = 0.0
    k, p = torch.zeros(rows, dtype=torch.int64), torch.ones(rows)
    if top_k:
        k = torch.randint(0, 60, (rows,))
    if top_p:
        p = torch.rand(rows)
        p[::4] = 1.0
    return SampleInputs(
        temperature=(temperature * (not greedy)).to(device),
        top_k=k.to(device),
        top_p=p.to(device),
        seed=torch.randint(-(2**63), 2**63 - 1, (rows,)).to(device),
        position=torch.randint(0, 2**40, (rows,)).to(device),
        all_greedy=greedy,
        any_top_k=top_k,
        any_top_p=top_p,
    )


@pytest.mark.parametrize("vocab", VOCABS)
def test_greedy_takes_the_first_of_equals(vocab, device) -> None:
    logits = torch.randint(-9, 9, (5, vocab)).float().to(device)
    logits[1] = float("-inf")
    got = TritonSample().sample(logits, inputs(5, device, greedy=True))
    assert got.dtype == torch.int64
    assert got.tolist() == [int((row == row.max()).nonzero()[0]) for row in logits]


def test_rows_without_numbers_stay_in_range(device) -> None:
    logits = torch.full((4, 100), float("nan"), device=device)
    logits[1, 7] = 1.0
    got = TritonSample().sample(logits, inputs(4, device)).tolist()
    assert got[1] == 7
    assert all(0 <= token < 100 for token in got)


@pytest.mark.parametrize("vocab", VOCABS)
def test_noise_is_the_noise_of_ref(vocab, device) -> None:
    """With all logits equal the token is the argmax of the noise; the runner-up is too close once in a while."""
    rows = 12
    what = inputs(rows, device)
    noise = gumbel(what.seed, what.position, vocab)
    got = TritonSample().sample(torch.zeros(rows, vocab, device=device), what)
    for row in range(rows):
        if what.temperature[row] == 0:
            assert got[row] == 0
        else:
            assert noise[row, got[row]] >= noise[row].max() - 1e-5


@pytest.mark.parametrize(("top_k", "top_p"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("vocab", VOCABS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tokens_are_those_of_ref(vocab, top_k, top_p, dtype, device) -> None:
    rows = 5
    what = inputs(rows, device, top_k=top_k, top_p=top_p)
    logits = (torch.randn(rows, vocab) * 4).to(dtype).to(device)
    got = TritonSample().sample(logits, what)
    want = RefSample().sample(logits.float(), what)
    assert int((got != want).sum()) <= 1  # a kept set may differ by a token whose mass ends at top_p to the last digit


@pytest.mark.parametrize("vocab", VOCABS)
def test_kept_sets(vocab, device) -> None:
    """Top-k exactly, with ties; top-p but for tokens at which the mass reaches p within the sum's rounding."""
    rows = 6
    logits = (torch.randn(rows, vocab) * 3).to(device)
    logits[::2] = logits[::2].round()  # ties
    logits[4, : vocab // 2] = float("-inf")
    what = inputs(rows, device, top_k=True, top_p=False)
    drawing = what.temperature > 0
    scores = logits[drawing] / what.temperature[drawing].unsqueeze(1)
    kept = scores >= thresholds(logits, what)[drawing].unsqueeze(1)
    want = keep_top_k(scores, what.top_k[drawing]) > float("-inf")
    assert torch.equal(kept & (scores > float("-inf")), want)
    what = inputs(rows, device, top_k=True, top_p=True)
    drawing = what.temperature > 0
    scores = logits[drawing] / what.temperature[drawing].unsqueeze(1)
    kept = scores >= thresholds(logits, what)[drawing].unsqueeze(1)
    limited = keep_top_k(scores, what.top_k[drawing])
    mass = limited.double().softmax(dim=1)
    for row, p in enumerate(what.top_p[drawing].tolist()):
        want_row = keep_top_p(limited[row : row + 1], what.top_p[drawing][row : row + 1])[0] > float("-inf")
        off = (kept[row] & (scores[row] > float("-inf"))) != want_row
        for token in off.nonzero().flatten().tolist():
            above = float(mass[row][limited[row] > limited[row, token]].sum())
            assert abs(above - p) < 1e-5
    assert bool(kept.any(dim=1).all())


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_kept_sets_of_odd_rows(monkeypatch, kind, device) -> None:
    """Little room for what is gathered; few logits above -inf, one that is far off, all equal, none, no numbers."""
    monkeypatch.setattr(top_kp, "_ROOM", 64)
    logits = (torch.randn(9, 100) * 2).to(kind)
    logits[1, 20:] = float("-inf")
    logits[2, 3] = -3e30
    logits[3, 5] = 3e4
    logits[4] = -1.5
    logits[5] = float("-inf")
    logits[6, ::2] = float("nan")
    logits[7] = logits[7].abs().neg()
    logits = logits.to(device)
    for k, p in ((25, 1.0), (0, 0.6), (99, 0.9)):
        every = torch.ones(9, device=device)
        what = SampleInputs(0.7 * every, (k * every).long(), p * every, every.long(), every.long(), False, k > 0, p < 1)
        clean = logits.float().nan_to_num(nan=float("-inf"), neginf=float("-inf"))
        scores = clean / what.temperature.unsqueeze(1)  # by a number a GPU multiplies, with its inverse
        kept = (scores >= thresholds(logits, what).unsqueeze(1)) & (scores > float("-inf"))
        want = keep_top_p(keep_top_k(scores, what.top_k), what.top_p) > float("-inf")
        off = (kept != want).sum(1)
        off[5] = 0  # nothing is kept there, or all of it
        assert off.max() <= (1 if p < 1 else 0), (k, p, off.tolist())


def test_a_row_depends_on_itself_alone(device) -> None:
    what = inputs(4, device, top_k=True, top_p=True)
    logits = torch.randn(4, 300, device=device)
    every = TritonSample().sample(logits, what)
    for row in range(4):
        alone = SampleInputs(
            *(getattr(what, name)[row : row + 1] for name in ("temperature", "top_k", "top_p", "seed", "position")),
            False, True, True,
        )  # fmt: skip
        assert TritonSample().sample(logits[row : row + 1], alone) == every[row]
