"""A worker in a weight update and a sleep: what is served changes at once or not at all, and nothing stays."""

from __future__ import annotations

import json
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.wire.worker import AllocateKv, Init, KvGroupAlloc, ModelControl, ModelControlDone
from octavo.workers.model_body import ModelBody
from tests.e2e.trainer import segment, weights_of
from tests.tiny import make_llama

NORM = "model.norm.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_llama(tmp_path)


@pytest.fixture
def body(folder: Path) -> ModelBody:
    """A worker that is ready for steps and for updates through shared memory."""
    body = ModelBody()
    body.init(Init(0, 1, "", str(folder), "float32", "cpu", "auto", 0, 64, 4, 64, 1))
    body.allocate(AllocateKv((KvGroupAlloc(0, 4, 40, (0, 1)),)))
    say(body, "init_weight_transfer", info="{}")
    return body


def say(body: ModelBody, op: str, **args: str) -> ModelControlDone:
    return body.control(ModelControl(7, op, args))


def update(body: ModelBody, info: dict[str, Any], store: str = "") -> ModelControlDone:
    return say(body, "update_weights", info=json.dumps(info), store=store)


def logits(body: ModelBody) -> torch.Tensor:  # [2, 288] float32
    resident = body._resident
    assert resident is not None and resident.model is not None
    return resident.model.logits(torch.linspace(-1, 1, 128).view(2, 64))


def test_what_is_served_changes_at_the_commit(body: ModelBody, folder: Path) -> None:
    before = logits(body)
    assert body._resident is not None and body._resident.model is not None
    old = weakref.ref(body._resident.model)
    for part in ("model.embed_tokens.weight", NORM):
        assert say(body, "start_weight_update").error is None
        with segment({part: weights_of(folder)[part] * 2}) as info:
            assert update(body, info).error is None
        assert torch.equal(logits(body), before)
        assert say(body, "seal_weight_update", complete="false").result["missing"] != "0"
        assert torch.equal(logits(body), before)
        say(body, "commit_weight_update", key=part, store="", overlay="")
        if part == NORM:
            continue
        assert torch.allclose(logits(body), before * 2) and body._resident.weight_key == part
        before = logits(body)
    assert old() is None, "the model of before is gone"
    for tag in ("weights", "kv_cache"):
        say(body, "sleep", tags=tag, level="2")
    assert body._resident.model is None and body._resident.runner is None
    woken = say(body, "wake_up", tags="weights,kv_cache", key="0", overlays="[]")
    assert woken.result == {"weight_key": "0"} and body._resident.runner is not None


def test_a_failure_leaves_what_is_served(body: ModelBody, folder: Path) -> None:
    before = logits(body)
    say(body, "start_weight_update")
    with segment({NORM: weights_of(folder)[NORM]}) as info:
        for change, param in [
            ({"names": ["nothing"]}, "update_info.names.0"),
            ({"shapes": [[63]]}, "update_info.shapes.0"),
            ({"segment": "a/b"}, "update_info.segment"),
        ]:
            answer = update(body, info | change)
            assert (answer.code, answer.param) == ("invalid", param)
    say(body, "abort_weight_update")
    assert update(body, info).code == "conflict"
    assert torch.equal(logits(body), before)


def test_missing_weights_are_counted(body: ModelBody, folder: Path) -> None:
    say(body, "start_weight_update")
    weights = weights_of(folder)
    with segment({NORM: weights[NORM]}) as info:
        update(body, info)
    refused = say(body, "seal_weight_update", complete="true")
    assert refused.code == "conflict" and str(len(weights) - 1) in (refused.error or "")
    with segment(weights) as info:
        assert update(body, info).error is None
    assert say(body, "seal_weight_update", complete="true").result == {"missing": "0"}


def test_copies_are_loaded_over_the_checkpoint(body: ModelBody, folder: Path, tmp_path: Path) -> None:
    say(body, "start_weight_update")
    with segment({NORM: weights_of(folder)[NORM] * 3}) as info:
        update(body, info, str(tmp_path / "staged"))
    say(body, "seal_weight_update", complete="false")
    overlay = str(tmp_path / "000000")
    say(body, "commit_weight_update", key="k", store=str(tmp_path / "staged"), overlay=overlay)
    other = ModelBody()
    ready = other.init(
        Init(0, 1, "", str(folder), "float32", "cpu", "auto", 0, 64, 4, 64, 1, weight_key="k", overlays=(overlay,))
    )
    assert ready.weight_key == "k"
    mine, theirs = (each._resident.model.norm._weight for each in (body, other))  # type: ignore[union-attr]
    assert torch.equal(mine, theirs) and torch.equal(mine, weights_of(folder)[NORM] * 3)
