"""What few requests ask of logits: exact numbers, brute force, and distributions against exact probabilities."""

from __future__ import annotations

import math
from array import array

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.kernels.api import History
from octavo.kernels.cpu.sample import CpuSample
from octavo.kernels.logit_rows import BannedWords, Edits, Markers, Said, Thinking
from octavo.kernels.ref.logits import RefLogits
from octavo.wire.codec import pack_tokens
from octavo.wire.frontend import SamplingExtras, SamplingParams, ThinkingBudget
from octavo.workers.sampling.logprobs import unpack
from octavo.workers.sampling.sampler import Sampler
from tests.engine.fake_extras import forced

OPS = RefLogits()
VOCAB = 12


@pytest.mark.parametrize(
    ("penalties", "expected"),
    [((2.0, 0.0, 0.0), [1.0, 0.5, -1.0]), ((1.0, 0.0, 0.5), [2.0, 0.5, -1.0]), ((1.0, 0.5, 0.0), [2.0, 0.5, -1.0])],
)
def test_sp05_prompt_and_output_are_told_apart(penalties: tuple[float, ...], expected: list[float]) -> None:
    logits = torch.tensor([[2.0, 1.0, -1.0]])
    history = History(torch.tensor([[0, 1, 2, 2]], dtype=torch.int32), torch.tensor([1]), torch.tensor([2]))
    assert OPS.penalize(logits, history, torch.tensor([penalties])).tolist() == [expected]


def test_a_negative_logit_is_multiplied_and_counts_add_up() -> None:
    history = History(torch.tensor([[2, 1, 1, 1]], dtype=torch.int32), torch.tensor([1]), torch.tensor([4]))
    found = OPS.penalize(torch.tensor([[2.0, 1.0, -1.0]]), history, torch.tensor([[2.0, 0.5, 0.25]]))
    assert found.tolist() == [[2.0, 0.5 - 3 * 0.5 - 0.25, -2.0]]


def test_bad_words_look_at_what_was_just_said() -> None:
    words = torch.tensor([[-2, -2, 5], [-2, 3, 4], [1, 3, 6], [7, 3, 4]])
    for said, banned in (([], {5}), ([3], {5, 4}), ([1, 3], {5, 4, 6}), ([3, 1], {5})):
        logits, tokens = torch.zeros(2, VOCAB), torch.tensor([[0] * 4, [1, 3, *said] + [0] * (2 - len(said))])
        where = Said(row=1, slot=1, prompt_len=2, length=2 + len(said))
        OPS.ban_words(logits, tokens.to(torch.int32), [BannedWords(where, words)])
        assert {t for t in range(VOCAB) if logits[1, t] == -math.inf} == banned
        assert not logits[0].any()


def test_ids_are_allowed_then_biased_then_banned() -> None:
    logits = torch.tensor([[1.0] * 4, [1.0, 2.0, 3.0, 4.0]])
    ids = torch.tensor
    OPS.edit(logits, [Edits(1, ids([3, 1, 0]), ids([1, 2]), torch.tensor([0.5, 9.0]), ids([0]))])
    assert logits.tolist() == [[1.0] * 4, [-math.inf, 2.5, -math.inf, 4.0]]


#: Start, end, and what closes thoughts too.
MARKERS = [([0], [2, 3], []), ([0, 1], [2, 3, 2], []), ([0], [1, 3, 2], [2]), ([0], [1, 1, 3, 1, 2], [1, 2])]


def allowed_next(tokens: list[int], prompt: int, budget: ThinkingBudget) -> set[int]:
    ids = [torch.tensor(list(array("i", packed))) for packed in (budget.start, budget.end, budget.close or budget.end)]
    found, said = torch.zeros(1, VOCAB), Said(0, 0, prompt, len(tokens))
    OPS.end_thinking(found, torch.tensor([tokens], dtype=torch.int32), [Thinking(said, Markers(*ids), budget.budget)])
    return {token for token in range(VOCAB) if found[0, token] > -math.inf}


@given(st.lists(st.integers(0, 3), min_size=1, max_size=24), st.integers(1, 8), st.integers(0, 6), st.integers(0, 3))
@settings(max_examples=400, deadline=None)
def test_thinking_budgets_equal_brute_force(tokens: list[int], prompt: int, budget: int, which: int) -> None:
    prompt = min(prompt, len(tokens))
    thinking = ThinkingBudget(budget, *(pack_tokens(ids) for ids in MARKERS[which]))
    must = forced(tokens, prompt, SamplingExtras(thinking=thinking))
    assert allowed_next(tokens, prompt, thinking) == (set(range(VOCAB)) if must is None else {must})


START, CLOSE, TEXT, ANSWER, THOUGHT = 0, 1, [2, 3], 4, 5


def said(script: list[int], budget: int, length: int) -> list[int]:
    """What comes of a model that says `script` wherever it may, from within thoughts that the prompt has begun."""
    thinking = ThinkingBudget(budget, pack_tokens([START]), pack_tokens([*TEXT, CLOSE]), pack_tokens([CLOSE]))
    tokens, wanted = [6, START], iter(script)
    while len(tokens) < length + 2:
        allowed = allowed_next(tokens, 2, thinking)
        tokens.append(next(iter(allowed)) if len(allowed) == 1 else next(wanted))
    return tokens[2:]


@pytest.mark.parametrize("spare", range(-1, 6))
def test_rs08_the_end_text_is_put_in_once_or_not_at_all(spare: int) -> None:
    """Thoughts that end before the budget is spent end by themselves; when it is spent, by the text."""
    thoughts, answer = [THOUGHT] * 6, [ANSWER] * 5
    found = said([*thoughts, CLOSE, *answer], len(thoughts) + spare, 12)
    if spare >= 1:
        assert found == [*thoughts, CLOSE, *answer]
        return
    kept = thoughts[: len(thoughts) + spare]
    assert found[: len(kept) + 3] == [*kept, *TEXT, CLOSE]
    assert found.count(TEXT[0]) == 1


def test_rs09_a_budget_is_for_all_blocks_of_thoughts() -> None:
    script = [*[THOUGHT] * 20, ANSWER, START, *[ANSWER] * 400]
    found = said(script, 20, 400)
    assert found[:25] == [*[THOUGHT] * 20, *TEXT, CLOSE, ANSWER, START]
    assert found[25:28] == [*TEXT, CLOSE], "the second block ends at once"
    assert (found.count(THOUGHT), found.count(CLOSE), len(found)) == (20, 2, 400)


def test_sp10_trap_min_tokens_masks_all_end_tokens() -> None:
    """Also behind the wire, and for a request that comes back with tokens: those count."""
    made = SamplingParams(0, 10, temperature=0.0, stop_token_ids=(2, 7), extras=SamplingExtras(min_tokens=5))
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=SamplingParams)
    logits = torch.zeros(1, VOCAB)
    logits[0, 7], logits[0, 2], logits[0, 4] = 9, 8, 7
    sampler = Sampler(1, CpuSample(), OPS, "cpu")
    tokens, prompt = torch.zeros(1, 16, dtype=torch.int32), 3
    for said in range(7):
        sampler.take(0, decoded, prompt)  # as after a restart
        drawn = sampler.draw(logits.clone(), np.zeros(1, dtype=np.int64), np.array([prompt + said]), tokens).tokens
        assert drawn.tolist() == [4 if said < 5 else 7]


def test_trap_logprobs_and_ranks() -> None:
    scores = torch.tensor([[0.0, 3.0, 1.0, 2.0]])
    packed = unpack(OPS.logprobs(scores, torch.tensor([2]), 2, None, True).numpy())
    assert (packed.width, list(array("i", packed.ids)), list(array("i", packed.ranks))) == (3, [2, 1, 3], [3])
    expected = scores.log_softmax(1)[0, [2, 1, 3]].tolist()
    assert list(array("f", packed.values)) == pytest.approx(expected)
    raw = unpack(OPS.logprobs(scores, torch.tensor([2]), 0, torch.tensor([0, 3]), False).numpy())
    assert (list(array("i", raw.ids)), list(array("f", raw.values))) == ([2, 0, 3], [1.0, 0.0, 2.0])


EXTRAS = {
    "plain": (SamplingParams(0, 9, temperature=0.8), None),
    "top_k": (SamplingParams(0, 9, temperature=0.8, top_k=5), None),
    "top_p": (SamplingParams(0, 9, temperature=0.8, top_p=0.7), None),
    "min_p": (SamplingParams(0, 9, temperature=0.8), SamplingExtras(min_p=0.2)),
    "repetition": (SamplingParams(0, 9), SamplingExtras(repetition_penalty=1.5)),
    "frequency": (SamplingParams(0, 9), SamplingExtras(frequency_penalty=0.7)),
    "presence": (SamplingParams(0, 9), SamplingExtras(presence_penalty=1.2)),
    "bias": (
        SamplingParams(0, 9),
        SamplingExtras(bias_ids=pack_tokens([1, 4]), biases=np.array([1.5, -2], dtype="<f4").tobytes()),
    ),
    "allowed": (SamplingParams(0, 9), SamplingExtras(allowed_token_ids=pack_tokens([0, 3, 5, 7]))),
    "all": (
        SamplingParams(0, 9, temperature=1.2, top_k=8, top_p=0.95),
        SamplingExtras(min_p=0.02, repetition_penalty=1.2, presence_penalty=0.3, bad_words=(pack_tokens([2, 6]),)),
    ),
}
PROMPT, OUTPUT = [3, 4], [4, 4, 2]


def exact(logits: np.ndarray, params: SamplingParams, extras: SamplingExtras | None) -> np.ndarray:
    """The probabilities by the definitions, in float64.  # [V], ... -> [V]"""
    x = logits.astype(np.float64).copy()
    e = extras or SamplingExtras()
    if e.allowed_token_ids:
        x[[t for t in range(VOCAB) if t not in array("i", e.allowed_token_ids)]] = -np.inf
    for token, bias in zip(array("i", e.bias_ids), array("f", e.biases), strict=True):
        x[token] += bias
    for token in set(PROMPT + OUTPUT):
        x[token] = x[token] / e.repetition_penalty if x[token] > 0 else x[token] * e.repetition_penalty
    for token in set(OUTPUT):
        x[token] -= e.frequency_penalty * OUTPUT.count(token) + e.presence_penalty
    for word in e.bad_words:
        *begin, last = array("i", word)
        if OUTPUT[-len(begin) :] == begin:
            x[last] = -np.inf
    x /= params.temperature
    p = np.exp(x - x.max())
    p[p < e.min_p * p.max()] = 0
    order = np.argsort(-p, kind="stable")
    if params.top_k:
        p[order[params.top_k :]] = 0
    p /= p.sum()
    before = np.cumsum(p[order]) - p[order]
    p[order[before >= params.top_p]] = 0
    return p / p.sum()


@pytest.mark.parametrize("name", EXTRAS)
def test_distributions_are_exact(name: str) -> None:
    """Chi-square over 4,000 draws with fixed seeds, beside plain neighbours that must not matter."""
    params, extras = EXTRAS[name]
    draws, batch = 4000, 100
    logits = torch.randn(VOCAB, generator=torch.Generator().manual_seed(7))
    probabilities = exact(logits.numpy(), params, extras)
    sampler = Sampler(batch, CpuSample(), OPS, "cpu")
    history = torch.zeros(batch, 8, dtype=torch.int32)
    history[:, : len(PROMPT + OUTPUT)] = torch.tensor(PROMPT + OUTPUT)
    counts = np.zeros(VOCAB)
    slots, positions = np.arange(batch), np.full(batch, len(PROMPT + OUTPUT))
    for start in range(0, 2 * draws, batch):
        for slot in range(batch):
            mine = slot % 2 == 0
            made = SamplingParams(
                start + slot, 9, params.temperature, params.top_p if mine else 1.0, params.top_k if mine else 0,
                extras=extras if mine else None,
            )  # fmt: skip
            sampler.take(slot, made, len(PROMPT))
        drawn = sampler.draw(logits.expand(batch, -1).clone(), slots, positions, history).tokens
        counts += np.bincount(drawn[::2].numpy(), minlength=VOCAB)
    kept = probabilities > 0
    assert counts[~kept].sum() == 0
    expected = probabilities[kept] * draws
    statistic = float(((counts[kept] - expected) ** 2 / expected).sum())
    freedom = int(kept.sum()) - 1
    # Wilson and Hilferty: this many standard deviations above the mean come once in ten million.
    assert (statistic / freedom) ** (1 / 3) < 1 - 2 / (9 * freedom) + 5.2 * math.sqrt(2 / (9 * freedom)), statistic


def test_sp04_plain_rows_draw_the_same_beside_special_ones() -> None:
    torch.manual_seed(1)
    logits, history = torch.randn(4, 50), torch.zeros(4, 8, dtype=torch.int32)
    sampler = Sampler(4, CpuSample(), OPS, "cpu")
    for slot in range(4):
        sampler.take(slot, SamplingParams(slot, 9), 2)
    slots, positions = np.arange(4), np.full(4, 5)
    alone = sampler.draw(logits, slots, positions, history)
    assert alone.logprobs == []
    sampler.take(1, SamplingParams(1, 9, extras=SamplingExtras(frequency_penalty=2.0, logprobs=3)), 2)
    beside = sampler.draw(logits, slots, positions, history)
    assert [int(alone.tokens[i]) for i in (0, 2, 3)] == [int(beside.tokens[i]) for i in (0, 2, 3)]
    assert [packed.owners for packed in beside.logprobs] == [(1,)]
