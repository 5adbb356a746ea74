"""Which device is taken, and what follows from it, without a GPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from octavo import devices, engine_settings
from octavo.config import build
from octavo.devices import (
    Gpu,
    choose_device,
    choose_threads,
    chunk_align,
    default_batched_tokens,
    torch_has_cuda,
    visible_gpus,
)
from octavo.errors import ConfigError

SMALL, LARGE = Gpu(24 << 30), Gpu(140 << 30)


@pytest.mark.parametrize(
    ("asked", "ranks", "gpus", "cuda", "device"),
    [
        ("auto", 1, (), False, "cpu"),
        ("auto", 1, (LARGE,), True, "cuda"),
        ("auto", 1, (LARGE,), False, "cpu"),
        ("auto", 4, (), True, "cpu"),
        ("cpu", 2, (LARGE,), True, "cpu"),
        ("cuda", 2, (LARGE, LARGE), True, "cuda"),
    ],
)
def test_a_device_is_chosen(asked: str, ranks: int, gpus: tuple[Gpu, ...], cuda: bool, device: str) -> None:
    assert choose_device(asked, ranks, gpus, cuda) == device


@pytest.mark.parametrize(
    ("asked", "ranks", "gpus", "cuda", "message"),
    [
        ("cuda", 1, (LARGE,), False, "--device cuda: the installed torch is built without CUDA"),
        ("cuda", 1, (), True, "--device cuda: no NVIDIA GPU is visible here; take --device cpu"),
        ("auto", 2, (LARGE,), True, "--tensor-parallel-size 2 needs as many GPUs, and 1 can be seen; lower it, or"),
        ("cuda", 8, (LARGE,), True, "--tensor-parallel-size 8 needs as many GPUs, and 1 can be seen; lower it"),
    ],
)
def test_what_is_missing_is_said(asked: str, ranks: int, gpus: tuple[Gpu, ...], cuda: bool, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        choose_device(asked, ranks, gpus, cuda)
    assert caught.value.message.startswith(message)


def test_tokens_of_a_step_follow_the_device() -> None:
    assert default_batched_tokens("cpu", (LARGE,)) == 2048
    assert default_batched_tokens("cuda", (SMALL,)) == 8192
    assert default_batched_tokens("cuda", (LARGE,)) == 16640
    assert default_batched_tokens("cuda", (LARGE, SMALL)) == 8192


def test_prompts_are_cut_where_attention_is_fast_on_gpus_with_large_steps() -> None:
    assert [chunk_align(*case) for case in (("cpu", 8192), ("cuda", 4096), ("cuda", 8192))] == [1, 1, 512]


@pytest.mark.parametrize(
    ("listed", "found"),
    [(None, [0, 1, 2]), ("", []), ("2,0", [2, 0]), ("1,7,0", [1]), ("GPU-aa,GPU-bb", [0, 1]), (" 1 ", [1]), ("-1", [])],
)
def test_visible_devices(listed: str | None, found: list[int]) -> None:
    assert devices._visible(3, listed) == found


def test_without_gpus_none_is_visible() -> None:
    assert devices._visible(0, "GPU-aa") == []


def test_a_machine_without_a_driver_has_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(devices.ctypes, "CDLL", missing)
    assert visible_gpus() == ()


@pytest.mark.parametrize(
    ("text", "built"),
    [("cuda: Optional[str] = '13.0'\n", True), ("cuda: Optional[str] = None\n", False), ('cuda = "12.8"\n', True)],
)
def test_the_build_of_torch_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, built: bool) -> None:
    (tmp_path / "version.py").write_text("debug = False\n" + text)
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(devices.importlib.util, "find_spec", lambda name: spec)
    assert torch_has_cuda() == built


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("cuda", 16640, None, None)),
        ({"device": "cpu"}, ("cpu", 2048, 4 << 30, None)),
        ({"enforce_eager": "true", "cuda_graph_sizes": ["4"]}, ("cuda", 16640, None, ())),
        ({"cuda_graph_sizes": ["8", "2", "8"], "max_num_batched_tokens": "512"}, ("cuda", 512, None, (2, 8))),
        ({"kv_cache_memory_bytes": "1G"}, ("cuda", 16640, 1 << 30, None)),
    ],
)
def test_the_engine_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], expected: tuple[object, ...]
) -> None:
    monkeypatch.setattr(engine_settings, "visible_gpus", lambda: (LARGE,))
    monkeypatch.setattr(engine_settings, "torch_has_cuda", lambda: True)
    monkeypatch.setattr(engine_settings, "available_bytes", lambda: 1 << 40)
    known = {"context_len": 4096, "path": tmp_path, "architecture": "LlamaForCausalLM", "config": {}}
    files = cast("Any", SimpleNamespace(**known))
    config = engine_settings.engine_config(build({"model": "m", **given}), files, tmp_path)
    assert (config.device, config.max_num_batched_tokens, config.kv_cache_bytes, config.graph_sizes) == expected
    assert config.gpu_memory_utilization == 0.92


@pytest.mark.parametrize(
    ("asked", "ranks", "cpus", "threads"),
    [(0, 1, 1, 1), (0, 1, 2, 1), (0, 2, 2, 1), (0, 1, 8, 7), (0, 2, 8, 3), (3, 2, 2, 3)],
)
def test_workers_share_the_cpus(asked: int, ranks: int, cpus: int, threads: int) -> None:
    assert choose_threads(asked, ranks, cpus) == threads
    assert choose_threads(0, 1) >= 1
