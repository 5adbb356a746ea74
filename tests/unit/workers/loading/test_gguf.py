"""GGUF weights: dequantised as the gguf package does, unpermuted as Transformers does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize as their_dequantize

from octavo.modelfiles import resolve, smollm2
from octavo.modelfiles.gguf_reader import GGML_TYPES, read_gguf
from octavo.workers.loading.dequantise import BLOCKS, dequantise
from octavo.workers.loading.gguf import GgufSource, gguf_sources
from tests.teacher import reference_model
from tests.unit.modelfiles.gguf_writer import TINY, write_gguf

if TYPE_CHECKING:
    from pathlib import Path

TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]
PACKED = [kind for kind in BLOCKS if kind not in ("F32", "F16", "BF16")]


def test_block_sizes_are_those_of_gguf() -> None:
    theirs = {kind.name: (kind.value, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}
    for number, (name, block, size) in GGML_TYPES.items():
        assert theirs[name] == (number, block, size)


@pytest.mark.parametrize("kind", PACKED)
def test_random_blocks_of_every_quantisation(kind: str) -> None:
    """To the bit what the gguf package makes of them. Scales are finite: a random fp16 may be infinite or no number."""
    rng = np.random.default_rng(7)
    _, size = BLOCKS[kind]
    blocks = rng.integers(0, 256, (6, 5, size), dtype=np.uint8)
    scale = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "Q4_1": (0, 2)}
    for at in scale.get(kind, (0, 2) if kind == "Q5_1" else (0,)):
        blocks[..., at : at + 2] = rng.standard_normal((6, 5, 1)).astype(np.float16).view(np.uint8)
    data = blocks.reshape(6, -1)
    with np.errstate(all="ignore"):
        theirs = their_dequantize(data, GGMLQuantizationType[kind])
        ours = dequantise(data, kind).numpy()
    assert ours.dtype == np.float32
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_and_slice(tmp_path: Path, kind: str) -> None:
    array = np.random.default_rng(0).standard_normal((12, 128), dtype=np.float32)
    path = write_gguf(tmp_path / "m.gguf", TINY, {"w": (array, kind)})
    theirs = GGUFReader(path).tensors[0]
    whole = torch.from_numpy(their_dequantize(theirs.data, theirs.tensor_type).copy())
    tensor = read_gguf(path).tensors["w"]
    source = GgufSource(tensor.data, tensor.type, tensor.shape)
    assert source.shape == (12, 128)
    assert torch.equal(source.read(slice(None)).float(), whole)
    for rows, columns in ((slice(3, 9), slice(32, 96)), (slice(0, 12), slice(5, 77)), (slice(11, 12), slice(0, 1))):
        assert torch.equal(source.read(rows, columns).float(), whole[rows, columns])


def interleave(rows: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """What a converter to GGUF does to q and k: from two halves of a head to neighbouring pairs."""
    return rows.reshape(heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_the_rows_of_q_and_k_are_put_back(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((rows, 64), dtype=np.float32) for rows in (64, 32, 32))
    bias = rng.standard_normal(64, dtype=np.float32)
    tensors = {
        "token_embd.weight": (np.ones((96, 64), dtype=np.float32), "F32"),
        "blk.0.attn_q.weight": (interleave(q, 4), kind),
        "blk.0.attn_k.weight": (interleave(k, 2), kind),
        "blk.0.attn_v.weight": (v, kind),
        "blk.0.attn_q.bias": (interleave(bias, 4), "F32"),
        "rope_freqs.weight": (np.ones(8, dtype=np.float32), "F32"),
    }
    path = write_gguf(tmp_path / "m.gguf", TINY, tensors)
    sources = dict(gguf_sources(path, resolve(str(path)).config))
    assert "rope_freqs.weight" not in sources
    prefix, tolerance = "model.layers.0.self_attn", 0 if kind == "F32" else 0.02
    for name, want in (("q_proj", q), ("k_proj", k), ("v_proj", v)):
        got = sources[f"{prefix}.{name}.weight"]
        np.testing.assert_allclose(got.read(slice(None)).numpy(), want, atol=tolerance, rtol=0)
        np.testing.assert_allclose(
            got.read(slice(16, 32), slice(8, 40)).numpy(), want[16:32, 8:40], atol=tolerance, rtol=0
        )
    np.testing.assert_array_equal(sources[f"{prefix}.q_proj.bias"].read(slice(16, 48)).numpy(), bias[16:48])


def test_the_demo_model_is_bit_for_bit_what_transformers_loads() -> None:
    path = smollm2.find()
    if path is None:
        pytest.skip("SmolLM2 is not here: run python -m octavo.modelfiles.smollm2")
    theirs = reference_model(path).state_dict()
    names = set()
    for name, source in gguf_sources(path, resolve(str(path)).config):
        names.add(name)
        assert torch.equal(source.read(slice(None)), theirs[name]), name
    assert names == set(theirs) - {"lm_head.weight"}
