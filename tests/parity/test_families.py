"""Every family against Transformers, through the real engine core: prefix hits, chunks, preemption, two ranks.

Models are tiny and random, in fp32. Sequences are longer than every window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.families import FAMILIES, make_model
from tests.parity.asks import mixed
from tests.parity.engine import Engine, EngineSetup, serve
from tests.parity.ranks import RankThreads
from tests.teacher import check_requests

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_with_prefix_hits_and_chunks(tmp_path: Path, family: str) -> None:
    model = make_model(tmp_path, FAMILIES[family])
    engine, served = serve(model, EngineSetup(num_blocks=200, budget=40), mixed(288, 18, 12, 90))
    assert sum(seen.cached > 0 for seen in served) >= 2
    assert engine.chunked > 4
    check_requests(model, [seen.check() for seen in served])


@pytest.mark.parametrize("family", ["qwen3", "gemma3", "olmo2", "granite"])
def test_a_family_in_bf16(tmp_path: Path, family: str) -> None:
    """Smaller weights, so that the tolerance means something: see test_gpu.py, which has every family."""
    model = make_model(tmp_path, FAMILIES[family], initializer_range=0.1)
    _, served = serve(model, EngineSetup(num_blocks=200, budget=40, dtype="bfloat16"), mixed(288, 9, 12, 80))
    check_requests(model, [seen.check() for seen in served], "bfloat16")


#: Models with nothing but windows: a request there grows only while it is shorter than the window.
_WINDOWS_ONLY = ("mistral", "phi3", "starcoder2")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_with_preemption(tmp_path: Path, family: str) -> None:
    model = make_model(tmp_path, FAMILIES[family], seed=1)
    small = family in _WINDOWS_ONLY
    setup = EngineSetup(num_blocks=9 if small else 26, block_tokens=8, budget=32)
    engine, served = serve(model, setup, mixed(288, 12, 36, 8) if small else mixed(288, 12, 24, 90))
    assert engine.stats().preemptions > 0
    check_requests(model, [seen.check() for seen in served])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_on_two_ranks(tmp_path: Path, family: str) -> None:
    """Ranks are threads of this process, so that a test of them takes no minutes; their collectives are real sums."""
    model = make_model(tmp_path, FAMILIES[family], seed=2, vocab_size=289)
    with RankThreads(2) as workers:
        setup = EngineSetup(num_blocks=120, budget=48)
        served = Engine(model, setup, workers).run(mixed(288, 6, 12, 60))
    assert all(len(seen.tokens) == seen.ask.max_tokens for seen in served)
    check_requests(model, [seen.check() for seen in served])


#: Half of each rotated dimension of Phi-3's heads of 16, of which 12 turn.
_LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.1, 1.3, 1.7, 2.0, 2.5],
    "long_factor": [1.0, 1.5, 2.5, 4.0, 6.0, 8.0],
}


@pytest.mark.parametrize("original", [16, 128], ids=["long", "short"])
def test_long_rope(tmp_path: Path, original: int) -> None:
    """Every sequence is longer than the original context, or none can be: see docs/models.md."""
    settings = {"original_max_position_embeddings": original, "rope_parameters": dict(_LONGROPE)}
    model = make_model(tmp_path, FAMILIES["phi3"], **settings)
    asks = [ask for ask in mixed(288, 12, 16, 90) if len(ask.prompt) > 16]
    _, served = serve(model, EngineSetup(num_blocks=200, max_model_len=512 if original == 16 else 128), asks)
    check_requests(model, [seen.check() for seen in served])
