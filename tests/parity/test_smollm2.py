"""SmolLM2-135M-Instruct against Transformers, through the real engine core.

By default a few requests, for time; OCTAVO_PARITY=full runs 64 of 48 tokens in each test.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tokenizers import Tokenizer

from octavo.modelfiles import export_tokenizer, resolve, smollm2
from tests.parity.engine import Ask, EngineSetup, serve
from tests.teacher import check_requests

if TYPE_CHECKING:
    from pathlib import Path

    from tests.parity.engine import Served

FULL = os.environ.get("OCTAVO_PARITY") == "full"
COUNT, MAX_TOKENS = (64, 48) if FULL else (8, 24)

pytestmark = pytest.mark.timeout(1800 if FULL else 240)

SYSTEMS = [
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
    "You are a careful editor. Answer in one short paragraph, name your sources, and never invent a number or a date.",
    "You write code in the style of the standard library. Explain nothing; show the function, its types and a test.",
    "You are a travel guide who knows the rivers and railways of Europe and answers as a list of three items.",
]
QUESTIONS = [
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Why is the sky blue in the day and red at dusk?",
    "Translate to German: the book lies on the table.",
    "List the first ten prime numbers.",
    "How does a hash table resolve collisions?",
    "def fibonacci(n):",
    "Tell me a story about a lighthouse keeper and a storm that lasted for seven days and seven nights.",
    "2 + 2 * 10 =",
    "Summarise: The committee met on Tuesday. Nothing was decided, and the next meeting was set for the spring.",
    "Qu'est-ce que la photosynthèse ?",
    "Give three reasons to learn a language, and one reason not to.",
]


@pytest.fixture(scope="module")
def model() -> Path:
    path = smollm2.find()
    if path is None:
        pytest.skip("SmolLM2 is not here: run python -m octavo.modelfiles.smollm2")
    return path


@pytest.fixture(scope="module")
def asks(model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Ask]:
    """Chats of mixed length that share four system prompts; every third samples."""
    folder = tmp_path_factory.mktemp("tokenizer")
    export_tokenizer(resolve(str(model)), folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    rng, asks = random.Random(0), []
    for number in range(COUNT):
        question = " ".join(rng.sample(QUESTIONS, rng.choice([1, 1, 2, 6])))
        system = SYSTEMS[number % len(SYSTEMS)]
        text = (
            f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        )
        if number % 5 == 4:
            text = question  # a plain completion, shorter than a block
        ids = tokenizer.encode(text).ids
        draw = {"temperature": 0.7, "top_k": 50, "top_p": 0.95} if number % 3 == 1 else {}
        asks.append(Ask(ids, MAX_TOKENS, seed=rng.getrandbits(64), arrives=2 * number, **draw))  # type: ignore[arg-type]
    return asks


def check(model: Path, served: list[Served], dtype: str = "float32") -> None:
    verdicts = check_requests(model, [seen.check() for seen in served], dtype)
    literal = sum(verdict.differs_at is None for verdict in verdicts)
    print(f"{dtype}: {literal} of {len(verdicts)} literally equal, worst loss {max(v.worst for v in verdicts):.6f}")


def test_trap_greedy_parity_staggered_with_shared_prefixes(model: Path, asks: list[Ask]) -> None:
    engine, served = serve(model, EngineSetup(num_blocks=700), asks)
    assert sum(seen.cached > 0 for seen in served) >= len(asks) // 3
    assert engine.stats().prefix_hits > 0
    check(model, served)


def test_in_chunks_of_16(model: Path, asks: list[Ask]) -> None:
    engine, served = serve(model, EngineSetup(num_blocks=700, budget=16), asks)
    assert engine.chunked >= len(asks)
    check(model, served)


def test_with_preemption(model: Path, asks: list[Ask]) -> None:
    engine, served = serve(model, EngineSetup(num_blocks=60, block_tokens=8), asks)
    assert engine.stats().preemptions > 0
    check(model, served)


def test_bfloat16(model: Path, asks: list[Ask]) -> None:
    """Greedy only: at unlikely tokens, which sampling reaches, bf16 itself is off by more than two ulps.

    Measured over 101 positions against fp32: rms 0.18 to 0.22 and at most 1.6 for Transformers and for octavo alike,
    whose prefill is bit for bit the same.
    """
    greedy = [replace(ask, temperature=0.0) for ask in asks]
    _, served = serve(model, EngineSetup(num_blocks=700, dtype="bfloat16"), greedy)
    check(model, served, "bfloat16")
