"""A worker in a weight update and a sleep: what is served changes at once or not at all, and nothing stays."""

from __future__ import annotations

import json
import os
import socket
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from octavo.wire.worker import AllocateKv, Init, KvGroupAlloc, ModelControl, ModelControlDone
from octavo.workers.model_body import ModelBody
from octavo.workers.weight_transfer.gloo import gloo_group
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


def test_what_cannot_be_read_is_refused_and_the_worker_lives(body: ModelBody, folder: Path) -> None:
    """A pipe that nobody writes, a folder, tensors that no memory holds, under a name that the model leaves out."""
    ignored = "model.rotary_emb.inv_freq"
    shared = Path("/dev/shm")
    pipe, inner = shared / f"octavo-test-pipe-{os.getpid()}", shared / f"octavo-test-folder-{os.getpid()}"
    os.mkfifo(pipe)
    inner.mkdir()
    try:
        say(body, "start_weight_update")
        info = {"names": [ignored], "dtype_names": ["float32"], "shapes": [[1]], "segment": "none"}
        for change, param in [
            ({"segment": pipe.name}, "segment"),
            ({"segment": inner.name}, "segment"),
            ({"shapes": [[1 << 70]]}, "shapes.0"),
            ({"shapes": [[1 << 30, 1 << 30]]}, "shapes.0"),
        ]:
            answer = update(body, info | change)
            assert (answer.code, answer.param) == ("invalid", f"update_info.{param}"), answer.error
    finally:
        pipe.unlink()
        inner.rmdir()


def test_a_store_without_room_ends_the_update_alone(body: ModelBody, folder: Path, tmp_path: Path) -> None:
    before = logits(body)
    (tmp_path / "staged").write_text("in the way")
    say(body, "start_weight_update")
    with segment({NORM: weights_of(folder)[NORM] * 2}) as info:
        assert update(body, info, str(tmp_path / "staged" / "deeper")).code == "failed"
    say(body, "abort_weight_update")
    assert torch.equal(logits(body), before)


def test_what_a_crash_left_of_a_commit_is_in_nobodys_way(body: ModelBody, tmp_path: Path) -> None:
    """Another rank died when this one had renamed its copy; the next update brings nothing that the model uses."""
    staged, overlay = tmp_path / "staged", tmp_path / "000000"
    overlay.mkdir()
    (overlay / "000001.safetensors").write_bytes(b"of a commit that never was")
    say(body, "start_weight_update")
    with segment({"model.rotary_emb.inv_freq": torch.ones(1)}) as info:
        assert update(body, info, str(staged)).error is None
    say(body, "seal_weight_update", complete="false")
    assert say(body, "commit_weight_update", key="k", store=str(staged), overlay=str(overlay)).error is None
    assert load_file(overlay / "000001.safetensors") == {} and not staged.exists()


def test_init_again_keeps_a_trainer_that_is_there_and_meets_one_that_is_new(body: ModelBody) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = {"backend": "gloo", "master_address": "127.0.0.1", "master_port": port, "world_size": 2, "timeout_s": 20}
    met: list[object] = []
    assert body._controls is not None
    for _ in range(2):
        groups: list[object] = []
        host = threading.Thread(
            target=lambda kept=groups: kept.append(gloo_group("127.0.0.1", port, 0, 2, 20, server=True))
        )
        host.start()
        assert say(body, "init_weight_transfer", info=json.dumps(place)).error is None
        host.join()
        met.append(body._controls._backend)
        assert say(body, "init_weight_transfer", info=json.dumps(place)).error is None
        assert body._controls._backend is met[-1], "it is there"
        groups.clear()
    assert met[0] is not met[1]


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
