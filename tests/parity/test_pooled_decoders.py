"""Decoders that pool give what Transformers' hidden states and heads give, however prompts are cut or found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from octavo.wire.frontend import Pooling
from tests.parity.pooled import EMBED, RAW, PooledEngine
from tests.parity.test_encoders import TOLERANCE, hidden_of, normalised, prompts
from tests.tiny import make_llama

_SIZES: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def make(folder: Path, stem: str, suffix: str, **settings: Any) -> Any:
    """Save a random decoder; return Transformers' model."""
    torch.manual_seed(3)
    config = getattr(transformers, f"{stem}Config")(**{**_SIZES, **settings})
    model = getattr(transformers, stem + suffix)(config).float().eval()
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = make_llama(tmp_path_factory.mktemp("llama"))
    return folder, transformers.AutoModelForCausalLM.from_pretrained(folder).eval()


@pytest.mark.parametrize("budget", [1, 5, 16, 300])
def test_chunks_and_prefixes_change_nothing(budget: int, llama: tuple[Path, Any]) -> None:
    """Sentence and token level for every size of a step; the second run finds prefixes, but for tokens."""
    folder, model = llama
    engine = PooledEngine(folder, convert="embed", max_num_batched_tokens=str(budget), window=2)
    asked = prompts((40, 1, 90, 17))
    asked.append(asked[2][:64] + asked[0])
    states = [hidden_of(model, prompt) for prompt in asked]
    for again in (False, True):
        tokens = engine.run([(prompt, RAW) for prompt in asked])
        seen = engine.seen([(prompt, EMBED) for prompt in asked])
        for state, each, one in zip(states, tokens, seen, strict=True):
            np.testing.assert_allclose(each, state, **TOLERANCE)
            np.testing.assert_allclose(one.vectors[0], normalised(state[-1]), **TOLERANCE)
        assert not again or seen[2].cached >= 80
    assert budget > 16 or engine.chunked


def test_prompts_wait_for_a_small_pool(llama: tuple[Path, Any]) -> None:
    """A pool that holds little more than one prompt; means need all of each."""
    folder, model = llama
    engine = PooledEngine(
        folder, runner="pooling", max_num_batched_tokens="32", kv_cache_memory_bytes="260k", max_model_len="200",
        pooler_config='{"seq_pooling_type": "MEAN"}',
    )  # fmt: skip
    asked = prompts((150, 120, 180, 60))
    for prompt, seen in zip(asked, engine.run([(prompt, EMBED) for prompt in asked]), strict=True):
        np.testing.assert_allclose(seen[0], normalised(hidden_of(model, prompt).mean(0)), **TOLERANCE)


@pytest.mark.parametrize("stem", ["Llama", "Qwen3", "Mistral", "Gemma2"])
def test_heads_for_labels(stem: str, tmp_path: Path) -> None:
    model = make(tmp_path, stem, "ForSequenceClassification", num_labels=3)
    engine = PooledEngine(tmp_path, max_num_batched_tokens="20")
    asked = prompts((30, 12, 55))
    with torch.no_grad():
        logits = [model(torch.tensor([prompt])).logits[0] for prompt in asked]
    seen = engine.run([(prompt, Pooling("classify", False)) for prompt in asked])
    likely = engine.run([(prompt, Pooling("classify")) for prompt in asked])
    each = engine.run([(prompt, Pooling("token_classify", False)) for prompt in asked])
    for wanted, values, probs, of_tokens in zip(logits, seen, likely, each, strict=True):
        np.testing.assert_allclose(values[0], wanted.numpy(), **TOLERANCE)
        np.testing.assert_allclose(probs[0], wanted.softmax(-1).numpy(), **TOLERANCE)
        np.testing.assert_allclose(of_tokens[-1], wanted.numpy(), **TOLERANCE)


def test_a_checkpoint_of_the_model_alone(tmp_path: Path) -> None:
    model = make(tmp_path, "Qwen3", "Model", tie_word_embeddings=False)
    (prompt,) = prompts((25,))
    (seen,) = PooledEngine(tmp_path).run([(prompt, RAW)])
    np.testing.assert_allclose(seen, hidden_of(model, prompt), **TOLERANCE)


def test_steps_of_a_reward_model(tmp_path: Path) -> None:
    """Values of the tokens that mark a step, and of some columns."""
    model = make(tmp_path, "Qwen2", "ForTokenClassification", num_labels=2)
    weights = tmp_path / "model.safetensors"
    from safetensors.torch import load_file, save_file

    found = load_file(weights)
    save_file({path: w for path, w in found.items() if path != "score.bias"}, weights, {"format": "pt"})
    (prompt,) = prompts((30,))
    prompt[9] = prompt[20] = prompt[29] = 77
    engine = PooledEngine(
        tmp_path,
        convert="reward",
        hf_overrides='{"architectures": ["Qwen2ForCausalLM"]}',
        pooler_config='{"step_tag_id": 77, "returned_token_ids": [1]}',
    )
    (seen,) = engine.run([(prompt, Pooling("token_classify"))])
    wanted = hidden_of(model, prompt)[[9, 20, 29]] @ model.score.weight.detach().numpy()[1]
    assert seen.shape == (3, 1)
    np.testing.assert_allclose(seen[:, 0], wanted, **TOLERANCE)
