"""Penalties, log probabilities and masks against `ref`."""

from __future__ import annotations

import pytest
import torch

from octavo.kernels.api import History
from octavo.kernels.logit_rows import BannedWords, Edits, Markers, Said, Thinking
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
    """Words of one token and of several, two with the same end, more than a program takes, none; of some rows."""
    words = torch.randint(10, 90, (150, 3))
    words[:7] = torch.tensor([[-2, -2, 4], [-2, 6, 3], [5, 6, 2], [9, 6, 1], [-2, 5, 0], [7, 6, 2], [-2, -2, 4]])
    tokens = torch.tensor([[5, 6, 5, 6, 2**30], [1, 5, 6, 6, 2**30], [5, 6, 2**30, 2**30, 2**30]], dtype=torch.int32)
    places = [Said(0, 2, 2, 2), Said(2, 0, 2, 4), Said(1, 1, 2, 3)]
    for count in (150, 1):
        banned = [BannedWords(place, words[:count].to(device)) for place in places]
        banned[1] = BannedWords(places[1], words[:0].to(device))
        for some in (banned, banned[:1], banned[1:2], []):
            want = torch.randn(3, 105).to(device)[:, :100]
            got = want.clone()
            RefLogits().ban_words(want, tokens.to(device), some)
            TritonLogits().ban_words(got, tokens.to(device), some)
            assert torch.equal(got, want)


@pytest.mark.parametrize("vocab", VOCABS)
def test_edits(vocab, device) -> None:
    """Each kind alone and all together, more ids than a program takes at once; rows that are not named stay."""
    many = torch.randperm(vocab)[: min(vocab - 2, 1500)].to(device)
    few, biases = torch.tensor([3, 0, 9]).to(device), torch.randn(len(many)).to(device)
    edits = [
        Edits(4, many, None, None, None),
        Edits(0, None, many, biases, None),
        Edits(2, None, None, None, many[: vocab // 2]),
        Edits(5, many[: vocab // 2], few, biases[:3], many[:1]),
        Edits(1, few, None, None, few[:2]),
    ]
    wide = torch.randn(7, vocab + 3).to(device)
    wide[4, vocab // 2 : vocab] = float("-inf")
    got, want = wide.clone()[:, :vocab], wide.clone()[:, :vocab]
    TritonLogits().edit(got, edits)
    RefLogits().edit(want, edits)
    assert torch.equal(got, want)


MARKERS = [([0], [2, 3], [3]), ([0, 1], [2, 3, 2], [2]), ([0], [1, 3, 2], [2]), ([0], [1, 1, 3, 1, 2], [1, 2])]


@pytest.mark.parametrize("longest", [24, pytest.param(3000, marks=pytest.mark.gpu)])
def test_thinking_budgets(longest, device) -> None:
    """Rows of all lengths with few tokens, so that markers are everywhere; what stands behind a row's is never read."""
    rows, vocab = 24, 70
    tokens = torch.randint(0, 4, (rows + 1, longest + 3), dtype=torch.int32)
    thinking = []
    for row in range(rows):
        length = longest if row < 2 else int(torch.randint(1, longest + 1, ()))
        prompt = int(torch.randint(1, length + 1, ()))
        tokens[rows - row, length:] = 2**30
        ids = (torch.tensor(part).to(device) for part in MARKERS[row % 4])
        # Half of the rows end with the end's first tokens.
        end = MARKERS[row % 4][1][: row % 3]
        if row % 2 and len(end) < length:
            tokens[rows - row, length - len(end) : length] = torch.tensor(end, dtype=torch.int32)
        budget = int(torch.randint(0, max(2, length // 3), ()))
        thinking.append(Thinking(Said(row, rows - row, prompt, length), Markers(*ids), budget))
    want = torch.randn(rows, vocab + 1).to(device)[:, :vocab]
    got = want.clone()
    RefLogits().end_thinking(want, tokens.to(device), thinking)
    TritonLogits().end_thinking(got, tokens.to(device), thinking)
    assert torch.equal(got, want)
    assert 0 < int((want == float("-inf")).any(dim=1).sum()) < rows


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocab", [31, 64, 2100])
def test_masks(vocab, kind, device) -> None:
    logits = torch.randn(5, vocab).to(kind).to(device)
    masks = torch.randint(-(2**31), 2**31, (2, -(-vocab // 32)), dtype=torch.int64).to(torch.int32).to(device)
    rows, want = torch.tensor([3, 1]).to(device), logits.clone()
    RefMask().apply_token_mask(want, rows, masks)
    TritonMask().apply_token_mask(logits, rows, masks)
    assert torch.equal(logits, want)
