"""Prompts that are vectors: those of a prompt's ids give what the ids give, in chunks, from the cache, computed anew.

`python -m pytest -m gpu tests/parity/test_prompt_embeds.py` runs them on a GPU.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file, save_file

from octavo.wire.frontend import Embeds
from tests.families import FAMILIES, make_model
from tests.parity.asks import mixed
from tests.parity.engine import Ask, EngineSetup, serve
from tests.teacher import check_requests, reference_model
from tests.tiny import make_llama

if TYPE_CHECKING:
    from pathlib import Path

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def embedded(model: Path, asks: list[Ask], dtype: str = "float32") -> list[Ask]:
    """Return the same requests with vectors, as Transformers takes them; each third keeps its ids."""
    embed = reference_model(model, "float32", "cpu").get_input_embeddings()
    given = []
    for number, ask in enumerate(asks):
        if number % 3 == 2:
            given.append(ask)
            continue
        with torch.inference_mode():
            rows = embed(torch.tensor(ask.prompt)).to(DTYPES[dtype]).contiguous()
        values = rows.view(torch.uint8).numpy().tobytes()
        given.append(dataclasses.replace(ask, embeds=Embeds(rows.shape[1], dtype, values)))
    return given


SETUPS = {
    "plain": EngineSetup(num_blocks=400),
    "chunks": EngineSetup(num_blocks=400, budget=16),
    "preemption": EngineSetup(num_blocks=40, block_tokens=4, max_model_len=112, budget=64),
}


def same(model: Path, setup: EngineSetup, asks: list[Ask]) -> None:
    engine, served = serve(model, setup, embedded(model, asks))
    check_requests(model, [seen.check() for seen in served])
    if setup == SETUPS["plain"]:
        _, of_ids = serve(model, setup, asks)
        assert [seen.tokens for seen in served] == [seen.tokens for seen in of_ids]
    assert engine.stats().preemptions > 2 or setup.num_blocks == 400
    assert engine.chunked > 8 or setup.budget > 16


@pytest.mark.parametrize("name", SETUPS)
def test_vectors_of_ids_are_as_good_as_the_ids(tmp_path: Path, name: str) -> None:
    same(make_llama(tmp_path), SETUPS[name], mixed(288, 12, 16, 60))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("graph_sizes", [(), (1, 2, 4, 16)], ids=["eager", "graphs"])
@pytest.mark.parametrize("name", SETUPS)
def test_on_a_gpu(tmp_path: Path, name: str, graph_sizes: tuple[int, ...]) -> None:
    """Steps that are recorded read ids: one with vectors among its tokens must not be one of them."""
    setup = dataclasses.replace(SETUPS[name], device="cuda:0", graph_sizes=graph_sizes, window=2)
    same(make_llama(tmp_path), setup, mixed(288, 12, 16, 60))


@pytest.mark.parametrize("family", ["gemma2", "gemma3", "granite"])
def test_families_that_scale_their_embeddings(tmp_path: Path, family: str) -> None:
    """Vectors are scaled as Transformers scales `inputs_embeds`."""
    model = make_model(tmp_path, FAMILIES[family])
    _, served = serve(model, EngineSetup(num_blocks=200, budget=40), embedded(model, mixed(288, 6, 12, 60)))
    check_requests(model, [seen.check() for seen in served])


def test_the_cache_has_a_prompt_for_the_same_vectors_alone(tmp_path: Path) -> None:
    """Two prompts of one length have the same ids, all of them 0."""
    model = make_llama(tmp_path)
    asks = [Ask(list(range(first, first + 50)), 8) for first in (3, 103)]
    first, other, _ = embedded(model, [*asks, asks[0]])
    later = [dataclasses.replace(ask, arrives=40) for ask in (first, other)]
    _, served = serve(model, EngineSetup(num_blocks=200), [first, other, *later])
    assert [seen.cached for seen in served] == [0, 0, 48, 48]
    check_requests(model, [seen.check() for seen in served])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_vectors_of_another_type_than_the_model(tmp_path: Path, dtype: str) -> None:
    """Of a table that this type holds exactly."""
    model = make_llama(tmp_path)
    weights = load_file(model / "model.safetensors")
    name = "model.embed_tokens.weight"
    weights[name] = weights[name].to(DTYPES[dtype]).float()
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    _, served = serve(model, EngineSetup(num_blocks=200), embedded(model, mixed(288, 6, 8, 40), dtype))
    check_requests(model, [seen.check() for seen in served])
