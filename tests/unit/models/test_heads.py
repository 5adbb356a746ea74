"""Cases CF05 and CF06 of the bank (../shared/cases): output heads that are tied, untied, both, or have a bias."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from octavo.errors import ModelError
from octavo.kernels.select import reference
from octavo.layers.base import Build
from octavo.layers.batch import Progress
from octavo.layers.parallel import SingleGroup
from octavo.modelfiles import resolve
from octavo.models.base import build_model
from octavo.workers.loading.load import load_weights
from tests.families import FAMILIES, make_model
from tests.tiny import make_llama

Change = dict[str, torch.Tensor]


def logits(folder: Path, hidden: torch.Tensor) -> torch.Tensor:  # [R, hidden] -> [R, vocab]
    files = resolve(str(folder))
    build = Build(reference(), SingleGroup(), torch.float32, "cpu", 64)
    model = build_model(files.architecture, files.config, build)
    load_weights(model, files, 0, Progress())
    return model.logits(hidden)


def save(folder: Path, tied: bool, **changes: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """Make a model and change its file: a tensor to add, None to leave one out. Return what the file has then."""
    make_llama(folder, tie_word_embeddings=tied, num_hidden_layers=1)
    tensors = load_file(folder / "model.safetensors")
    for name, value in changes.items():
        name = name.replace("__", ".")
        tensors.pop(name, None)
        if value is not None:
            tensors[name] = value
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return tensors


HIDDEN = torch.randn(3, 64, generator=torch.Generator().manual_seed(1))


def test_cf05_a_tied_head_is_the_embedding(tmp_path: Path) -> None:
    tensors = save(tmp_path, tied=True)
    assert "lm_head.weight" not in tensors
    torch.testing.assert_close(logits(tmp_path, HIDDEN), HIDDEN @ tensors["model.embed_tokens.weight"].T)


def test_cf05_the_files_own_head_wins_over_a_tied_config(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    head = torch.randn(288, 64)
    save(tmp_path, tied=True, lm_head__weight=head)
    with caplog.at_level(logging.WARNING, "octavo"):
        got = logits(tmp_path, HIDDEN)
    torch.testing.assert_close(got, HIDDEN @ head.T)
    assert "ties the output head to the embedding, but the file has another head" in caplog.text
    theirs = LlamaForCausalLM.from_pretrained(tmp_path)
    torch.testing.assert_close(got, theirs.lm_head(HIDDEN).detach())


def test_cf05_a_copy_of_the_embedding_is_no_head_of_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tensors = save(tmp_path, tied=True)
    save(tmp_path, tied=True, lm_head__weight=tensors["model.embed_tokens.weight"].clone())
    with caplog.at_level(logging.WARNING, "octavo"):
        got = logits(tmp_path, HIDDEN)
    torch.testing.assert_close(got, HIDDEN @ tensors["model.embed_tokens.weight"].T)
    assert not caplog.text


def test_cf05_an_untied_head_comes_from_the_file(tmp_path: Path) -> None:
    tensors = save(tmp_path, tied=False)
    torch.testing.assert_close(logits(tmp_path, HIDDEN), HIDDEN @ tensors["lm_head.weight"].T)


def test_cf05_an_untied_head_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    save(tmp_path, tied=False, lm_head__weight=None)
    with pytest.raises(ModelError, match=r"1 missing: lm_head\.weight"):
        logits(tmp_path, HIDDEN)


@pytest.mark.parametrize("part", [True, False, None], ids=["tied", "untied", "silent"])
def test_cf05_the_text_config_says_whether_the_head_is_tied(tmp_path: Path, part: bool | None) -> None:
    """A model of text and images: its whole says one thing, its text part another, or nothing (Gemma 3: tied)."""
    plain = make_model(tmp_path / "plain", FAMILIES["gemma3"], tie_word_embeddings=part is not False)
    text: dict[str, Any] = json.loads((plain / "config.json").read_text())
    text.pop("architectures")
    text.pop("tie_word_embeddings", None)
    if part is not None:
        text["tie_word_embeddings"] = part
    whole = {"architectures": ["Gemma3ForConditionalGeneration"], "tie_word_embeddings": part is False}
    folder = tmp_path / "whole"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(whole | {"text_config": text, "vision_config": {"hidden_size": 9}}))
    tensors = load_file(plain / "model.safetensors")
    renamed = {name.replace("model.", "model.language_model.", 1): value for name, value in tensors.items()}
    save_file(renamed | {"model.vision_tower.weight": torch.ones(2)}, folder / "model.safetensors")
    torch.testing.assert_close(logits(folder, HIDDEN), logits(plain, HIDDEN))
    head = tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"])
    torch.testing.assert_close(logits(folder, HIDDEN), HIDDEN @ head.T)


@pytest.mark.parametrize("tied", [True, False])
def test_cf06_a_bias_of_the_head_is_added(tmp_path: Path, tied: bool) -> None:
    bias = torch.randn(288)
    tensors = save(tmp_path, tied, lm_head__bias=bias)
    head = tensors["model.embed_tokens.weight" if tied else "lm_head.weight"]
    torch.testing.assert_close(logits(tmp_path, HIDDEN), HIDDEN @ head.T + bias, atol=1e-4, rtol=0)


def test_cf06_what_is_not_used_is_listed(tmp_path: Path) -> None:
    save(tmp_path, tied=True, lm_head__scale=torch.ones(3))
    with pytest.raises(ModelError, match=r"1 unexpected: lm_head\.scale"):
        logits(tmp_path, HIDDEN)
