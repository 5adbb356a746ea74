"""Encoders give what Transformers gives: hidden states, pooled vectors, labels; alone and among others."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from octavo.wire.frontend import Pooling
from tests.encoders import ENCODERS, make_encoder, make_sentence_files
from tests.parity.pooled import EMBED, RAW, PooledEngine, Vectors

TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}


def prompts(lengths: tuple[int, ...], seed: int = 1) -> list[list[int]]:
    """Random texts of so many tokens, none of them special."""
    rng = random.Random(seed)
    return [[rng.randrange(5, 70) for _ in range(length)] for length in lengths]


def hidden_of(model: Any, prompt: list[int], **inputs: Any) -> Vectors:
    """Transformers' last hidden states of one text."""
    with torch.no_grad():
        base = getattr(model, model.base_model_prefix, model)
        found: Vectors = base(torch.tensor([prompt]), **inputs).last_hidden_state[0].numpy()
    return found


def normalised(vector: Vectors) -> Vectors:
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize("name", ENCODERS)
def test_hidden_states_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    model = make_encoder(tmp_path, name)
    engine = PooledEngine(tmp_path, max_num_batched_tokens="150", window=2)
    asked = prompts((1, 7, 128, 7, 60, 33, 7, 100, 2))
    for prompt, seen in zip(asked, engine.run([(prompt, RAW) for prompt in asked]), strict=True):
        np.testing.assert_allclose(seen, hidden_of(model, prompt), **TOLERANCE)
    assert engine.chunked == 0


@pytest.mark.parametrize("name", ENCODERS)
def test_pooled_vectors(name: str, tmp_path: Path) -> None:
    model = make_encoder(tmp_path, name)
    asked = prompts((3, 50, 20))
    states = [hidden_of(model, prompt) for prompt in asked]
    for kind, reduce in (("CLS", lambda x: x[0]), ("MEAN", lambda x: x.mean(0)), ("LAST", lambda x: x[-1])):
        engine = PooledEngine(tmp_path, pooler_config=f'{{"pooling_type": "{kind}"}}')
        wants = [EMBED, Pooling("embed", False), Pooling("embed", dimensions=16)]
        for want in wants:
            for state, seen in zip(states, engine.run([(prompt, want) for prompt in asked]), strict=True):
                expected = reduce(state)[: want.dimensions or None]
                expected = expected if want.activate is False else normalised(expected)
                np.testing.assert_allclose(seen[0], expected, **TOLERANCE)


@pytest.mark.parametrize("name", ENCODERS)
def test_labels(name: str, tmp_path: Path) -> None:
    model = make_encoder(tmp_path, name, "ForSequenceClassification", num_labels=3)
    engine = PooledEngine(tmp_path)
    assert engine.plan.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    asked = prompts((5, 90, 31))
    with torch.no_grad():
        logits = [model(torch.tensor([prompt])).logits[0] for prompt in asked]
    raw = engine.run([(prompt, Pooling("classify", False)) for prompt in asked])
    likely = engine.run([(prompt, Pooling("classify")) for prompt in asked])
    for wanted, values, probs in zip(logits, raw, likely, strict=True):
        np.testing.assert_allclose(values[0], wanted.numpy(), **TOLERANCE)
        np.testing.assert_allclose(probs[0], wanted.softmax(-1).numpy(), **TOLERANCE)


@pytest.mark.parametrize("name", ENCODERS)
def test_labels_of_tokens(name: str, tmp_path: Path) -> None:
    model = make_encoder(tmp_path, name, "ForTokenClassification", num_labels=4)
    engine = PooledEngine(tmp_path)
    assert engine.plan.tasks == ("token_classify",)
    (prompt,) = prompts((40,))
    with torch.no_grad():
        wanted = model(torch.tensor([prompt])).logits[0].numpy()
    (seen,) = engine.run([(prompt, Pooling("token_classify", False))])
    np.testing.assert_allclose(seen, wanted, **TOLERANCE)


def test_the_second_text_of_a_pair_has_its_own_segment(tmp_path: Path) -> None:
    model = make_encoder(tmp_path, "bert", "ForSequenceClassification", num_labels=1)
    engine = PooledEngine(tmp_path)
    asked = prompts((12, 12, 30))
    seconds = [5, 0, 29]
    seen = engine.run(
        [(prompt, Pooling("classify", second=second)) for prompt, second in zip(asked, seconds, strict=True)]
    )
    for prompt, second, value in zip(asked, seconds, seen, strict=True):
        types = torch.tensor([[int(second > 0 and place >= second) for place in range(len(prompt))]])
        with torch.no_grad():
            wanted = model(torch.tensor([prompt]), token_type_ids=types).logits[0].sigmoid().numpy()
        np.testing.assert_allclose(value[0], wanted, **TOLERANCE)


def test_paddings_inside_of_a_text_take_no_position(tmp_path: Path) -> None:
    model = make_encoder(tmp_path, "roberta")
    (prompt, other) = prompts((20, 9))
    prompt[3] = prompt[11] = prompt[12] = 0
    seen = PooledEngine(tmp_path).run([(other, RAW), (prompt, RAW)])
    np.testing.assert_allclose(seen[1], hidden_of(model, prompt, attention_mask=torch.ones(1, 20)), **TOLERANCE)


def test_files_of_sentence_transformers_say_how(tmp_path: Path) -> None:
    model = make_encoder(tmp_path, "bert")
    make_sentence_files(tmp_path, "mean", normalise=False)
    engine = PooledEngine(tmp_path)
    assert (engine.plan.seq_pooling, engine.plan.use_activation, engine.plan.max_seq_len) == ("MEAN", False, 64)
    (prompt,) = prompts((64,))
    (seen,) = engine.run([(prompt, EMBED)])
    np.testing.assert_allclose(seen[0], hidden_of(model, prompt).mean(0), **TOLERANCE)


def test_older_names_and_heads_of_other_tasks(tmp_path: Path) -> None:
    """A checkpoint of a masked language model, with the names that BERT's norms had once."""
    from safetensors.torch import load_file, save_file

    model = make_encoder(tmp_path, "bert", "ForMaskedLM")
    weights = load_file(tmp_path / "model.safetensors")
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    renamed = {}
    for path, weight in weights.items():
        for new, older in old.items():
            path = path.replace(new, older)
        renamed[path] = weight
    save_file(renamed, tmp_path / "model.safetensors", {"format": "pt"})
    (prompt,) = prompts((15,))
    (seen,) = PooledEngine(tmp_path).run([(prompt, RAW)])
    np.testing.assert_allclose(seen, hidden_of(model, prompt), **TOLERANCE)


def test_bfloat16_is_near(tmp_path: Path) -> None:
    make_encoder(tmp_path, "modernbert", initializer_range=0.05)
    asked = [(prompt, EMBED) for prompt in prompts((10, 100))]
    wide = PooledEngine(tmp_path).run(asked)
    narrow = PooledEngine(tmp_path, dtype="bfloat16").run(asked)
    for one, other in zip(wide, narrow, strict=True):
        assert float(one[0] @ other[0]) > 0.99
