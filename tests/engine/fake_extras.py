"""What a FakeWorker does with SamplingExtras: plain Python over lists, also the reference for the real ones.

Penalties enter the hash that chooses; what bans or forces tokens does so exactly.
"""

from __future__ import annotations

import hashlib
import struct
from array import array

from octavo.wire.frontend import Logprobs, SamplingExtras, SamplingParams

__all__ = ["banned", "choose", "fake_logprobs", "forced", "thoughts"]


def thoughts(
    tokens: list[int], prompt_len: int, start: list[int], end: list[int], close: list[int]
) -> tuple[bool, int]:
    """Return whether a block of thoughts is open at the end, and how many tokens of thought count."""
    opened, spent, block, at = False, 0, 0, 0
    for at in range(1, len(tokens) + 1):
        if tokens[:at][-len(start) :] == start and at >= len(start):
            spent += opened  # a marker within a block is a thought like any other
            opened, block = True, 0
        elif tokens[:at][-len(close) :] == close and at >= len(close):
            if opened:
                whole = tokens[:at][-len(end) :] == end and at >= len(end)
                spent -= min(len(end if whole else close) - 1, block)
            opened, block = False, 0
        elif opened:
            spent, block = spent + 1, block + 1
        if at == prompt_len and not opened:
            spent = 0
        elif at == prompt_len:
            spent = block
    return opened, spent


def forced(tokens: list[int], prompt_len: int, extras: SamplingExtras) -> int | None:
    """Return the token that a spent thinking budget forces, if it does."""
    if extras.thinking is None:
        return None
    start, end = list(array("i", extras.thinking.start)), list(array("i", extras.thinking.end))
    opened, spent = thoughts(tokens, prompt_len, start, end, list(array("i", extras.thinking.close)) or end)
    if not opened or spent < extras.thinking.budget:
        return None
    have = max(k for k in range(len(end)) if tokens[len(tokens) - k :] == end[:k])
    return end[have]


def banned(tokens: list[int], prompt_len: int, sampling: SamplingParams) -> set[int]:
    """Return the tokens that must not come next."""
    extras, output = sampling.extras, tokens[prompt_len:]
    if extras is None:
        return set()
    found = {
        id for id, bias in zip(array("i", extras.bias_ids), array("f", extras.biases), strict=True) if bias == -100
    }
    if len(output) < extras.min_tokens:
        found |= set(sampling.stop_token_ids)
    for packed in extras.bad_words:
        *begin, last = array("i", packed)
        if len(output) >= len(begin) and output[len(output) - len(begin) :] == begin:
            found.add(last)
    return found


def choose(value: int, tokens: list[int], prompt_len: int, sampling: SamplingParams, vocab: int) -> int:
    """Return the token that `value` chooses."""
    extras = sampling.extras
    if extras is None:
        return value % vocab
    must = forced(tokens, prompt_len, extras)
    if must is not None:
        return must
    allowed = list(array("i", extras.allowed_token_ids)) or range(vocab)
    if extras.repetition_penalty != 1 or extras.frequency_penalty or extras.presence_penalty:
        value ^= _hash(prompt_len, *sorted(tokens[prompt_len:]))  # the prompt's border must survive everything
    never = banned(tokens, prompt_len, sampling)
    if never.issuperset(allowed):
        return allowed[0]  # a real sampler also draws something then
    for attempt in range(10_000):
        token = allowed[_hash(value % 2**63, attempt) % len(allowed)]
        if token not in never:
            return token
    raise AssertionError("all tokens are banned")


def fake_logprobs(prefix: int, token: int, count: int, vocab: int) -> Logprobs:
    """Return one row: a function of what is before the token and of the token."""
    width = 1 + (vocab if count < 0 else count)
    ids = [(token + place) % vocab for place in range(width)]
    values = [-float(_hash(prefix % 2**63, id) % 4096) / 256 for id in ids]
    return Logprobs(width, array("i", ids).tobytes(), struct.pack(f"<{width}f", *values), struct.pack("<i", 1 + token))


def _hash(*numbers: int) -> int:
    data = b"".join(number.to_bytes(8, "little") for number in numbers)
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
