"""Penalties, log probabilities and masks against `ref`."""

from __future__ import annotations

import pytest
import torch

from octavo.kernels.api import History
from octavo.kernels.ref.logits import RefLogits
from octavo.kernels.ref.mask import RefMask
from octavo.kernels.triton.logits import TritonLogits
from octavo.kernels.triton.mask import TritonMask

VOCABS = [37, 2100, pytest.param(151936, marks=pytest.mark.gpu)]


@pytest.mark.parametrize("vocab", VOCABS)
def test_penalties_are_those_of_ref_to_the_bit(vocab, device) -> None:
    rows, longest = 3, 1500
    wide = torch.randn(rows, vocab + 5).to(device)
    logits = wide[:, :vocab]
    logits[0, :4] = float("-inf")
    tokens = torch.randint(0, min(vocab, 300), (rows, longest), dtype=torch.int32)
    lengths = torch.tensor([longest, 7, 1])
    tokens[1, 7:] = 2**30  # what stands behind a row's tokens is no token
    history = History(tokens.to(device), torch.tensor([1200, 0, 1]).to(device), lengths.to(device))
    clean = History(tokens.where(tokens < vocab, 0).to(device), history.prompts, history.lengths)
    penalties = torch.tensor([[1.7, 0.3, 0.9], [1.0, -0.5, 0.0], [0.6, 0.0, 1.1]]).to(device)
    want = RefLogits().penalize(logits, clean, penalties)
    assert torch.equal(TritonLogits().penalize(logits, history, penalties), want)


@pytest.mark.parametrize("vocab", VOCABS)
@pytest.mark.parametrize("normalize", [False, True])
def test_logprobs(vocab, normalize, device) -> None:
    scores = (8 * torch.randn(4, vocab)).to(device)
    scores[1, 5:] = float("-inf")
    scores[2, :] -= 3e4
    chosen = scores.argmax(1)
    chosen[3] = 20
    for top, ids in ((3, None), (0, None), (0, torch.tensor([2, 0, 30]).to(device))):
        got = TritonLogits().logprobs(scores, chosen, top, ids, normalize)
        want = RefLogits().logprobs(scores, chosen, top, ids, normalize)
        width = want.shape[1] // 2
        assert torch.equal(got[:, :width], want[:, :width])
        assert torch.equal(got[:, -1], want[:, -1])
        values = (part[:, width : 2 * width].contiguous().view(torch.float32) for part in (got, want))
        torch.testing.assert_close(*values, rtol=1e-5, atol=5e-3 if vocab > 5000 else 1e-3)


@pytest.mark.parametrize("vocab", VOCABS)
def test_min_p(vocab, device) -> None:
    """Rows that are greedy or have no min-p keep all; in a wider tensor."""
    logits = (4 * torch.randn(5, vocab + 3)).to(device)[:, :vocab]
    logits[1, 7:] = float("-inf")
    heat = torch.tensor([1.0, 0.7, 0.0, 1.5, 2.0], device=device)
    min_p = torch.tensor([0.1, 0.5, 0.3, 0.0, 1.0], device=device)
    got = TritonLogits().keep_min_p(logits, heat, min_p)
    assert torch.equal(got, RefLogits().keep_min_p(logits, heat, min_p))
    assert (got > float("-inf")).sum(1).tolist()[3:] == [vocab, 1]


def test_bad_words(device) -> None:
    """Words of one token and of several, two with the same end, more than a program takes, none."""
    words = torch.randint(10, 90, (150, 3))
    words[:8] = torch.tensor(
        [[-2, -2, 4], [-2, 6, 3], [5, 6, 2], [9, 6, 1], [-2, 5, 0], [7, 6, 2], [-2, -2, 4], [-1, 6, 8]]
    )
    for said in ([5, 6], [-1, 6], [-1, -1]):
        want = torch.randn(100).to(device)
        got, place = want.clone(), torch.tensor(said).to(device)
        RefLogits().ban_words(want, place, words.to(device))
        TritonLogits().ban_words(got, place, words.to(device))
        assert torch.equal(got, want)
    alone = got.clone()
    TritonLogits().ban_words(alone, place[:0], words[:0, :1].to(device))
    assert torch.equal(alone, got)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocab", [31, 64, 2100])
def test_masks(vocab, kind, device) -> None:
    logits = torch.randn(5, vocab).to(kind).to(device)
    masks = torch.randint(-(2**31), 2**31, (2, -(-vocab // 32)), dtype=torch.int64).to(torch.int32).to(device)
    rows, want = torch.tensor([3, 1]).to(device), logits.clone()
    RefMask().apply_token_mask(want, rows, masks)
    TritonMask().apply_token_mask(logits, rows, masks)
    assert torch.equal(logits, want)
