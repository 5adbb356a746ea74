"""bench/frontend runs to its end, and its figures are what was scripted where the script decides them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.frontend.__main__ import main
from bench.frontend.processes import Cpu, Programs, allocations, running
from bench.frontend.report import rows, spread
from bench.frontend.work import Work, prepare_tokenizer
from octavo.errors import ConfigError


def test_all_the_work_gives_a_table_and_a_list(
    programs: Programs, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "results" / "frontend.json"
    assert main(["--quick", "--rounds", "1", "--output", str(file)]) == 0
    found = {row["name"]: row for row in json.loads(file.read_text())}
    assert set(found["requests_s"]) == {"name", "engine", "value", "unit", "spread", "versions", "date"}
    assert found["token_user_us"]["goal"] == 3.0
    assert 0.9 <= found["tokens_per_event"]["value"] <= 2.0
    assert found["ttft_p99_ms"]["value"] >= Work.quick().serve_step_ms
    table = capsys.readouterr().out
    assert all(name in table for name in found)
    assert "Machine:" in table and "Noise:" in table


def test_loads_count_what_the_script_sends(programs: Programs, tmp_path: Path) -> None:
    prepare_tokenizer(tmp_path / "tokenizer")
    body = {"model": "mock", "prompt": "Two by two.", "stream": True, "stream_options": {"include_usage": True}}
    bodies = [body | {"max_tokens": count, "ignore_eos": True} for count in (1, 7)]
    with running(programs, tmp_path / "tokenizer", "--step-time", "1") as stack:
        found = stack.load("/v1/completions", bodies, "--connections", "3", "--num-requests", "20")
        assert (found.requests, found.tokens) == (20, 10 * 1 + 10 * 7)
        assert 0 < found.ttft_ms["p50"] <= found.ttft_ms["p99"] <= found.total_ms["max"]
        with pytest.raises(ConfigError, match="20 of 20 requests failed: status 404"):
            stack.load("/v1/nothing", bodies, "--num-requests", "20")


def test_figures_are_medians_and_their_range() -> None:
    rounds = [{"requests_s": value} for value in (100.0, 90.0, 130.0)]
    (row,) = rows(rounds, {"requests_s": 200.0}, {"octavo": "1"}, "2026-01-01")
    assert (row["value"], row["spread"], row["goal"]) == (100.0, 0.4, 200.0)
    assert spread([0.0, 0.0]) == 0.0
    assert (Cpu(3.0, 1.0) - Cpu(1.0, 0.5)).total == 2.5


def test_allocations_are_read_from_what_the_allocator_prints(tmp_path: Path) -> None:
    log = tmp_path / "log"
    merged = {"small": {"nrequests": 40, "nmalloc": 7}, "large": {"nrequests": 2}}
    log.write_text("12:00 INFO frontend x\n")
    with pytest.raises(ConfigError, match="does not count"):
        allocations(log)
    told = json.dumps({"jemalloc": {"stats.arenas": {"merged": merged}}}, indent=1)
    log.write_text(f"12:00 INFO frontend x\n{told}\n")
    assert allocations(log) == 42


def test_a_program_that_is_missing_is_named_with_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tikv-jemallocator/stats"):
        Programs.find(str(tmp_path / "none"))
