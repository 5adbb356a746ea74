from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from octavo.errors import ModelError
from octavo.modelfiles import resolve
from octavo.modelfiles.gguf_arch import GGUF_ARCHITECTURES
from octavo.modelfiles.gguf_config import checkpoint_name, rotary_heads
from tests.unit.modelfiles.gguf_writer import TINY, write_gguf

if TYPE_CHECKING:
    from pathlib import Path

LLAMA = GGUF_ARCHITECTURES["llama"]
TABLE = {"token_embd.weight": (np.ones((96, 64), dtype=np.float32), "F32")}


def config(tmp_path: Path, metadata: dict[str, Any], **tensors: Any) -> dict[str, Any]:
    named = {name.replace("__", "."): value for name, value in tensors.items()}
    return resolve(str(write_gguf(tmp_path / "m.gguf", TINY | metadata, TABLE | named))).config


@pytest.mark.parametrize(
    ("gguf", "checkpoint"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output_norm.weight", "model.norm.weight"),
        ("output.weight", "lm_head.weight"),
        ("blk.12.attn_q.weight", "model.layers.12.self_attn.q_proj.weight"),
        ("blk.0.attn_q.bias", "model.layers.0.self_attn.q_proj.bias"),
        ("blk.3.ffn_down.weight", "model.layers.3.mlp.down_proj.weight"),
        ("rope_freqs.weight", None),
        ("blk.0.ssm_a", "blk.0.ssm_a"),
    ],
)
def test_names(gguf: str, checkpoint: str | None) -> None:
    assert checkpoint_name(gguf, LLAMA) == checkpoint


def test_heads_that_are_permuted() -> None:
    heads = {"num_attention_heads": 9, "num_key_value_heads": 3}
    assert rotary_heads("blk.0.attn_q.weight", LLAMA, heads) == 9
    assert rotary_heads("blk.0.attn_k.bias", LLAMA, heads) == 3
    assert rotary_heads("blk.0.attn_v.weight", LLAMA, heads) == 0
    assert rotary_heads("blk.0.attn_q.weight", GGUF_ARCHITECTURES["qwen2"], heads) == 0


def test_rope_scaling(tmp_path: Path) -> None:
    linear = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    assert config(tmp_path, linear)["rope_parameters"] == {
        "rope_type": "linear",
        "rope_theta": 10000.0,
        "factor": 4.0,
    }
    with pytest.raises(ModelError, match="rope scaling 'longrope' lacks rope_factors_short"):
        config(tmp_path, {"llama.rope.scaling.type": "longrope"})
    with pytest.raises(ModelError, match="rope scaling 'spiral'"):
        config(tmp_path, {"llama.rope.scaling.type": "spiral"})


def test_frequency_factors_become_part_of_the_config(tmp_path: Path) -> None:
    factors = np.arange(1, 9, dtype=np.float32)
    got = config(tmp_path, {}, rope_freqs__weight=(factors, "F32"))
    assert got["rope_parameters"]["freq_factors"] == factors.tolist()


def test_an_output_tensor_unties_the_head(tmp_path: Path) -> None:
    assert config(tmp_path, {})["tie_word_embeddings"] is True
    assert config(tmp_path, {}, output__weight=TABLE["token_embd.weight"])["tie_word_embeddings"] is False


def test_end_tokens(tmp_path: Path) -> None:
    both = {"tokenizer.ggml.eos_token_id": 5, "tokenizer.ggml.eot_token_id": 9}
    assert config(tmp_path, both)["eos_token_id"] == [5, 9]


def test_absent_metadata_and_experts_are_named(tmp_path: Path) -> None:
    mixtral = config(tmp_path, {"llama.expert_count": 8, "llama.expert_used_count": 2})
    assert (mixtral["architectures"], mixtral["num_local_experts"]) == (["MixtralForCausalLM"], 8)
    bare = {key: value for key, value in TINY.items() if key != "llama.block_count"}
    with pytest.raises(ModelError, match=r"lacks the metadata 'llama\.block_count'"):
        resolve(str(write_gguf(tmp_path / "m.gguf", bare, TABLE)))
