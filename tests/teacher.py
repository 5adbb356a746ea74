"""The teacher-forced check: what "equal" means for a real model (ARCHITECTURE, section 5).

Over prompt plus output, in one forward of Transformers in the same dtype, every token that was sent must score (logit,
or logit / temperature + noise, among the tokens that top-k and top-p keep) within a tolerance of the best: 1e-3 in
fp32, two bf16 ulps of the largest logit in bf16. In fp32 each output is also literally what the reference would have
chosen, except after a reference margin below 1e-3, in at most 1% of requests.

Noise, kept sets and scores are computed here in numpy, apart from octavo's code.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

__all__ = ["Check", "Verdict", "check_requests", "check_tokens", "gumbel", "philox", "reference_model"]

FP32_TOLERANCE = 1e-3
LITERAL_EXCEPTIONS = 0.01  # of requests


@dataclass(frozen=True)
class Check:
    """One request: what was asked and what came."""

    prompt: list[int]
    tokens: list[int]
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Verdict:
    """How close one request came."""

    worst: float  # the largest loss of a score against the best, 0 if every token was the best
    differs_at: int | None  # index of the first token that is not literally the reference's choice


def check_tokens(model: Path | Any, check: Check, dtype: str = "float32", device: str = "cpu") -> Verdict:
    """Check one request; `model` is a folder or a .gguf file, which Transformers runs on `device`, or a loaded model.

    Raises AssertionError, which names the token, if a token scores too low, or in fp32 differs from the reference's
    choice at a margin of 1e-3 or more.
    """
    reference = reference_model(model, dtype, device) if isinstance(model, Path) else model
    logits = _logits(reference, check)  # [len(tokens), vocab] float32
    worst, differs_at = 0.0, None
    for index, token in enumerate(check.tokens):
        row = logits[index]
        tolerance = FP32_TOLERANCE if dtype == "float32" else 2 * _bf16_ulp(float(np.abs(row).max()))
        position = len(check.prompt) + index
        loss, choice, margin = _score(row, token, position, check, tolerance)
        where = f"token {index} ({token}, the reference's is {choice}) of a request of {len(check.prompt)} tokens"
        assert loss <= tolerance, f"{where} scores {loss:.6f} below the best; {tolerance:.6f} is allowed"
        worst = max(worst, loss)
        if token != choice and differs_at is None:
            differs_at = index
            assert dtype != "float32" or margin < tolerance, f"{where} differs at a margin of {margin:.6f}"
    return Verdict(worst, differs_at)


def check_requests(
    model: Path | Any, checks: list[Check], dtype: str = "float32", device: str = "cpu"
) -> list[Verdict]:
    """Check all requests of a test, and that few enough of them differ literally in fp32."""
    verdicts = [check_tokens(model, check, dtype, device) for check in checks]
    different = sum(verdict.differs_at is not None for verdict in verdicts)
    if dtype == "float32":
        assert different <= LITERAL_EXCEPTIONS * len(checks), f"{different} of {len(checks)} requests differ"
    return verdicts


@functools.lru_cache(maxsize=4)
def reference_model(path: Path, dtype: str = "float32", device: str = "cpu") -> Any:
    """Load a model with Transformers onto `device`."""
    import warnings

    from transformers import AutoModelForCausalLM

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kind: torch.dtype = getattr(torch, dtype)
        if path.suffix == ".gguf":
            model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=kind)
            return model.eval().to(device)
        # Older versions choose sdpa for Gemma 2, which leaves the cap on scores out.
        capped = json.loads((path / "config.json").read_text()).get("attn_logit_softcapping")
        options = {"attn_implementation": "eager"} if capped else {}
        return AutoModelForCausalLM.from_pretrained(path, dtype=kind, **options).eval().to(device)


def _logits(reference: Any, check: Check) -> np.ndarray[Any, np.dtype[np.float32]]:
    ids = torch.tensor([check.prompt + check.tokens[:-1]], device=reference.device)
    with torch.inference_mode():
        out = reference(input_ids=ids, logits_to_keep=len(check.tokens), use_cache=False)
    result: np.ndarray[Any, np.dtype[np.float32]] = out.logits[0].to(torch.float32).cpu().numpy()
    return result


def _score(
    row: np.ndarray[Any, Any], token: int, position: int, check: Check, tolerance: float
) -> tuple[float, int, float]:
    """Return the token's loss, the reference's choice, and its margin over the next."""
    if check.temperature == 0:
        scores, sure, maybe = row.astype(np.float64), None, None
        exact = np.ones(len(row), dtype=bool)
        sure = maybe = exact
    else:
        scores = row.astype(np.float64) / check.temperature + gumbel(check.seed, position, len(row))
        exact, sure, maybe = (_kept(row, check, slack) for slack in (0.0, -tolerance, tolerance))
    assert maybe[token], f"token {token} is not among those that top-k {check.top_k}, top-p {check.top_p} keep"
    allowed = np.where(exact, scores, -np.inf)
    order = np.argsort(-allowed, kind="stable")[:2]
    margin = float(allowed[order[0]] - allowed[order[1]])
    best = np.where(sure, scores, -np.inf).max()
    return max(0.0, float(best - scores[token])), int(order[0]), margin


def _kept(row: np.ndarray[Any, Any], check: Check, slack: float) -> np.ndarray[Any, Any]:
    """Return the tokens kept if every logit is off by `slack` in the token's favour (or, negative, against it)."""
    kept = np.ones(len(row), dtype=bool)
    wide = row.astype(np.float64)
    if 0 < check.top_k < len(row):
        kept &= wide >= np.sort(wide)[-check.top_k] - 2 * slack
    if check.top_p < 1:
        if not kept.any():  # against every token's favour, none may be left
            return kept
        scaled = np.where(kept, wide, -np.inf) / check.temperature
        order = np.argsort(-scaled, kind="stable")
        mass = np.exp(scaled[order] - scaled[order[0]])
        before = (np.cumsum(mass) - mass) / mass.sum()
        # All logits off by `slack` change a mass by a factor of at most exp(2 slack / T).
        count = max(1, int((before * math.exp(-2 * slack / check.temperature) < check.top_p).sum()))
        kept &= scaled >= scaled[order[count - 1]] - 2 * slack / check.temperature
    return kept


def _bf16_ulp(value: float) -> float:
    return 2.0 ** (math.floor(math.log2(value)) - 7)


def philox(counter: np.ndarray[Any, Any], key: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Philox4x32-10 in uint64 arithmetic.  # [..., 4] uint32, [2] uint32 -> [..., 4] uint32"""
    c = [counter[..., i].astype(np.uint64) for i in range(4)]
    k = [np.uint64(key[0]), np.uint64(key[1])]
    mask, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    for number in range(10):
        if number:
            k = [(k[0] + np.uint64(0x9E3779B9)) & mask, (k[1] + np.uint64(0xBB67AE85)) & mask]
        left, right = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(right >> shift) ^ c[1] ^ k[0], right & mask, (left >> shift) ^ c[3] ^ k[1], left & mask]
    return np.stack(c, axis=-1).astype(np.uint32)


def gumbel(seed: int, position: int, vocab: int) -> np.ndarray[Any, Any]:
    """Return the noise of every token, in float64 from the float32 uniforms.  # [vocab] float64"""
    quads = np.arange(-(-vocab // 4), dtype=np.uint32)
    counter = np.zeros((len(quads), 4), dtype=np.uint32)
    counter[:, 0], counter[:, 1], counter[:, 2] = quads, position & 0xFFFFFFFF, position >> 32
    words = philox(counter, np.array([seed & 0xFFFFFFFF, seed >> 32], dtype=np.uint32)).reshape(-1)[:vocab]
    uniform = (words.astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-32)
    return -np.log(-np.log1p(-np.minimum(uniform, np.float32(1 - 2.0**-24)).astype(np.float64)))
