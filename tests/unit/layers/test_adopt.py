"""A copy of a model, as weight updates and sleep make one, has every weight of the original."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from octavo.kernels.select import select
from octavo.layers.base import Build, Layer
from octavo.layers.batch import Progress
from octavo.layers.parallel import SingleGroup
from octavo.modelfiles import resolve
from octavo.models.base import Model, build_model
from octavo.workers.loading.load import load_weights
from tests.families import FAMILIES, make_model
from tests.tiny import make_llama


def _loaded(folder: Path) -> tuple[Model, Model]:
    """Return a loaded model, and one of the same config that is not."""
    files = resolve(str(folder))
    build = Build(select("cpu", "float32"), SingleGroup(), torch.float32, "cpu", 64)
    model, copy = (build_model(files.architecture, files.config, build) for _ in range(2))
    load_weights(model, files, 0, Progress())
    return model, copy


def _tensors(owner: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor that a layer, or what it consists of, refers to; not those of other layers."""
    names = vars(owner) if hasattr(owner, "__dict__") else getattr(owner, "__slots__", ())
    for name in names:
        value = getattr(owner, name)
        for index, item in enumerate(value if isinstance(value, tuple) else (value,)):
            if isinstance(item, torch.Tensor):
                yield f"{path}{name}.{index}", item.to_dense() if item.is_mkldnn else item
            elif type(item).__module__.startswith(("octavo.layers", "octavo.kernels.api")) and not isinstance(
                item, Layer
            ):
                yield from _tensors(item, f"{path}{name}.")


def _same(model: Model, copy: Model) -> int:
    """Compare all tensors; return their number."""
    count = 0
    for (path, mine), (_, theirs) in zip(model.walk(), copy.walk(), strict=True):
        pairs = zip(_tensors(mine), _tensors(theirs), strict=True)
        for (name, one), (_, other) in pairs:
            assert torch.equal(one, other), f"{path}.{name}"
            count += 1
    return count


@pytest.mark.parametrize("family", ["llama", "qwen3_moe", "gemma3", "olmo2", "starcoder2"])  # every kind of layer
def test_a_copy_has_every_weight(tmp_path: Path, family: str) -> None:
    model, host = _loaded(make_model(tmp_path, FAMILIES[family]))
    host.adopt_all(model)  # not finished, as weights that sleep are
    copy = _loaded(tmp_path)[1]
    copy.adopt_all(host)
    for _, layer in copy.walk():
        layer.finish()
    assert _same(model, copy) >= 10


@pytest.mark.parametrize("change", ["none", "head", "bias"])
def test_a_copy_has_the_head_that_the_file_has(tmp_path: Path, change: str) -> None:
    make_llama(tmp_path, num_hidden_layers=1)
    tensors = load_file(tmp_path / "model.safetensors")
    if change == "head":
        tensors["lm_head.weight"] = torch.randn(288, 64)
    if change == "bias":
        tensors["lm_head.bias"] = torch.randn(288)
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    model, first = _loaded(tmp_path)
    second = _loaded(tmp_path)[1]
    first.adopt_all(model)
    second.adopt_all(first)
    for _, layer in second.walk():
        layer.finish()
    hidden = torch.randn(3, 64)
    with torch.no_grad():
        assert torch.equal(model.logits(hidden), second.logits(hidden))
