"""The strict loader, from every kind of file."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from octavo.errors import ModelError
from octavo.kernels.select import reference
from octavo.layers.base import Build
from octavo.layers.batch import Progress
from octavo.layers.parallel import SingleGroup
from octavo.modelfiles import resolve
from octavo.models.base import build_model
from octavo.workers.loading import progress as progress_module
from octavo.workers.loading.load import load_weights
from tests.tiny import make_llama

if TYPE_CHECKING:
    from pathlib import Path

    from octavo.layers.parallel import Group
    from octavo.models.base import Model


def build(folder: Path, load_format: str = "auto", group: Group | None = None, seed: int = 0) -> Model:
    files = resolve(str(folder), load_format)
    model = build_model(
        files.architecture, files.config, Build(reference(), group or SingleGroup(), torch.float32, "cpu", 64)
    )
    load_weights(model, files, seed, Progress())
    return model


def same(one: Model, other: Model) -> bool:
    """Whether both give the same logits for the same hidden states, and hold the same embedding."""
    hidden = torch.randn(3, 64, generator=torch.Generator().manual_seed(0))
    ids = torch.arange(0, 288, dtype=torch.int32)
    looked = [model.embedding(ids) for model in (one, other)]  # type: ignore[attr-defined]
    gated = [model.blocks[1].mlp(hidden) for model in (one, other)]  # type: ignore[attr-defined]
    return looked[0].equal(looked[1]) and gated[0].equal(gated[1]) and one.logits(hidden).equal(other.logits(hidden))


def change(folder: Path, edit: Any) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def split(folder: Path) -> None:
    """Turn one file into two and an index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    weight_map = {}
    for part, some in enumerate((names[::2], names[1::2])):
        file = f"model-{part}.safetensors"
        save_file({name: tensors[name] for name in some}, folder / file)
        weight_map |= dict.fromkeys(some, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_sharded_files_load_as_one(tmp_path: Path) -> None:
    one = build(make_llama(tmp_path / "one"))
    folder = make_llama(tmp_path / "two")
    split(folder)
    assert len(resolve(str(folder)).weights) == 2
    assert same(one, build(folder))


def test_every_missing_and_unexpected_tensor_is_named(tmp_path: Path) -> None:
    folder = make_llama(tmp_path)

    def edit(tensors: dict[str, torch.Tensor]) -> None:
        del tensors["model.norm.weight"], tensors["model.layers.1.mlp.up_proj.weight"]
        tensors["model.layers.7.mlp.up_proj.weight"] = torch.zeros(2)
        tensors["extra"] = torch.zeros(1)
        tensors["model.layers.0.input_layernorm.weight"] = torch.zeros(3)

    change(folder, edit)
    with pytest.raises(ModelError) as caught:
        build(folder)
    text = caught.value.message
    assert "2 missing: " in text
    assert all(name in text for name in ("model.norm.weight", "model.layers.1.mlp.up_proj.weight"))
    assert "2 unexpected: " in text
    assert all(name in text for name in ("extra", "model.layers.7.mlp.up_proj.weight"))
    assert "model.layers.0.input_layernorm.weight is [3], not [64]" in text
    assert "Download" in text


def test_what_older_checkpoints_store_is_left_out(tmp_path: Path) -> None:
    folder = make_llama(tmp_path)
    before = build(folder)

    def edit(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(8)
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()

    change(folder, edit)
    assert same(before, build(folder))


def test_dummy_weights_depend_on_the_seed_alone(tmp_path: Path) -> None:
    folder = make_llama(tmp_path)
    (folder / "model.safetensors").unlink()
    one, again, other = (build(folder, "dummy", seed=seed) for seed in (1, 1, 2))
    assert same(one, again)
    assert not same(one, other)
    table = one.embedding.table  # type: ignore[attr-defined]
    assert abs(float(table.std()) - 0.02) < 0.001
    assert one.norm._weight.eq(1).all()  # type: ignore[attr-defined]


def test_ranks_share_one_set_of_dummy_weights(tmp_path: Path) -> None:
    class Rank:
        size = 2

        def __init__(self, rank: int) -> None:
            self.rank = rank

        def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
            return x

        def all_gather(self, x: torch.Tensor) -> torch.Tensor:
            return x

    folder = make_llama(tmp_path)
    whole = build(folder, "dummy")
    x = torch.randn(3, 64)
    parts = [build(folder, "dummy", Rank(rank)).blocks[0].mlp(x) for rank in range(2)]  # type: ignore[attr-defined]
    torch.testing.assert_close(parts[0] + parts[1], whole.blocks[0].mlp(x))  # type: ignore[attr-defined]


def test_long_loads_report_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress_module, "_SECONDS", 0.0)
    folder, progress = make_llama(tmp_path), Progress()
    files = resolve(str(folder))
    model = build_model(files.architecture, files.config, Build(reference(), SingleGroup(), torch.float32, "cpu", 64))
    with caplog.at_level(logging.INFO, "octavo"):
        load_weights(model, files, 0, progress)
    assert "loading weights: 20 of 20 tensors" in caplog.text
    assert progress.layer > 20  # the heartbeat saw it move


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [
        ("model.", "language_model.model."),
        ("model.", "model.language_model."),
        ("", "module."),
        ("", "_orig_mod."),
        ("model.", ""),
    ],
    ids=["older_multimodal", "multimodal", "data_parallel", "compiled", "base_model_alone"],
)
def test_names_with_and_without_prefixes(tmp_path: Path, pattern: str, prefix: str) -> None:
    folder = make_llama(tmp_path / "model")
    plain = build(folder)
    tensors = load_file(folder / "model.safetensors")
    renamed = {prefix + name.removeprefix(pattern): tensor for name, tensor in tensors.items()}
    assert not set(renamed) & set(tensors)
    save_file(renamed, folder / "model.safetensors")
    assert same(build(folder), plain)
