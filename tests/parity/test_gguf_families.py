"""Every family out of a GGUF file gives what Transformers gives out of the safetensors that the file was made from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from octavo.modelfiles import resolve
from tests.families import FAMILIES, make_model
from tests.gguf_export import export_gguf
from tests.parity.asks import mixed
from tests.parity.engine import EngineSetup, serve
from tests.teacher import check_requests

if TYPE_CHECKING:
    from pathlib import Path

#: What the files' metadata cannot say, as the real models have it.
_LIKE_REAL: dict[str, dict[str, Any]] = {
    "gemma2": {"query_pre_attn_scalar": 24},
    "gemma3": {"query_pre_attn_scalar": 24, "layer_types": None},
    "qwen3_moe": {"mlp_only_layers": []},
    "qwen2": {"use_sliding_window": False},
    "smollm3": {"no_rope_layers": None},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_from_gguf(tmp_path: Path, family: str) -> None:
    model = make_model(tmp_path / "hf", FAMILIES[family], **_LIKE_REAL.get(family, {}))
    config = json.loads((model / "config.json").read_text())
    path = export_gguf(config, model, tmp_path / "model.gguf")
    assert resolve(str(path)).architecture == FAMILIES[family].model
    _, served = serve(path, EngineSetup(num_blocks=200, budget=64), mixed(288, 5, 8, 60))
    check_requests(model, [seen.check() for seen in served])
