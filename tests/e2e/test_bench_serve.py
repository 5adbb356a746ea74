"""`octavo bench` against `octavo serve`: both agree on what was asked, computed and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octavo.benchmarks.cli import main
from tests.e2e.server import Server


def bench(server: Server, tiny: Path, folder: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """Run a small load and return exit code and result with all details."""
    words = ["serve", "--base-url", server.url, "--tokenizer", str(tiny), "--num-prompts", "12", "--disable-tqdm",
             "--random-input-len", "20", "--random-output-len", "6", "--max-concurrency", "4", "--save-result",
             "--save-detailed", "--result-dir", str(folder), "--result-filename", "r.json", *more]  # fmt: skip
    code = main(words)
    return code, json.loads((folder / "r.json").read_text())


@pytest.mark.parametrize("backend", ["vllm", "openai-chat"])
def test_every_token_is_accounted_for(server: Server, tiny: Path, tmp_path: Path, backend: str) -> None:
    names = ("octavo:generation_tokens_total", "octavo:prompt_tokens_total")
    before = [server.metric(name) for name in names]
    code, found = bench(server, tiny, tmp_path, "--backend", backend)
    assert code == 0 and found["failures"] == {}
    assert (found["completed"], found["total_output_tokens"]) == (12, 72)
    assert found["output_tokens_from"] == {"usage": 12} and found["longer_than_asked"] == 0
    if backend == "vllm":
        assert found["input_lens"] == [20] * 12
    counted = [server.metric(name) - at for name, at in zip(names, before, strict=True)]
    assert counted == [72, found["total_input_tokens"]]
    for ttft, latency, gaps in zip(found["ttfts"], found["latencies"], found["itls"], strict=True):
        assert ttft > 0 and ttft + sum(gaps) <= latency + 1e-6


def test_a_wrong_model_fails_every_request(server: Server, tiny: Path, tmp_path: Path) -> None:
    code, found = bench(server, tiny, tmp_path, "--model", "another")
    assert code == 1
    assert (found["completed"], found["failures"]) == (0, {"http 404": 12})
    assert "another" in found["errors"][0]


def test_conversations(server: Server, tiny: Path, tmp_path: Path) -> None:
    words = ("--backend", "openai-chat", "--dataset-name", "multi-turn", "--num-prompts", "3")
    code, found = bench(server, tiny, tmp_path, *words)
    assert (code, found["completed"]) == (0, 9)
    lengths = found["input_lens"]
    assert all(a < b < c for a, b, c in zip(lengths[::3], lengths[1::3], lengths[2::3], strict=True))
