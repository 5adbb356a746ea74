"""The comparison's sums; engines are not started here."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from bench.compare import machine, report
from bench.compare.__main__ import main
from bench.compare.engines import ENGINES, installed
from bench.compare.models import Forms
from bench.compare.rounds import UNITS, Work

NAMES = tuple(UNITS)


def rounds() -> dict[str, list[dict[str, float]]]:
    """Two engines, three rounds; the peer takes twice as long as octavo in every round, while both get slower."""
    speeds = (100.0, 110.0, 150.0)
    return {
        "octavo": [dict.fromkeys(NAMES, speed) for speed in speeds],
        "peer": [dict.fromkeys(NAMES, 2 * speed) for speed in speeds],
    }


VERSIONS = {"octavo": {"octavo": "0.1"}, "peer": {"peer": "7"}}


def test_rows_are_medians_with_their_spread() -> None:
    found = report.rows(rounds(), VERSIONS, "2026-01-02")
    assert len(found) == 2 * len(UNITS)
    assert found[0] == {"name": "ttft_ms", "engine": "octavo", "value": 110.0, "unit": "ms",
                        "spread": pytest.approx(50 / 110, abs=1e-4), "versions": {"octavo": "0.1"},
                        "date": "2026-01-02"}  # fmt: skip


def test_ratios_are_taken_within_a_round() -> None:
    noise = [machine.Noise(0.01, 10.0, 0.1), machine.Noise(0.05, 12.0, 0.1)]
    text = report.markdown(rounds(), VERSIONS, {"peer": "a note"}, {"cores": "2"}, noise, Work(), "2026-01-02")
    # the values spread by almost half, the ratio not at all
    assert "| octavo | 110 ± 25 |" in text
    assert "| peer | 220 ± 50 (2.00x, 2.00 to 2.00) |" in text
    assert "peer 7; a note" in text and "1 to 5% of the cores" in text and "cores 2" in text


def test_the_file_is_a_list_with_one_entry_a_line(tmp_path: Path) -> None:
    found = report.rows(rounds(), VERSIONS, "d")
    report.write(tmp_path / "new" / "cpu.json", found)
    text = (tmp_path / "new" / "cpu.json").read_text()
    assert json.loads(text) == found and len(text.splitlines()) == len(found) + 2


def test_charts_of_a_result() -> None:
    charts = report.charts(report.rows(rounds(), VERSIONS, "d"))
    assert len(charts) == len(UNITS)
    for chart in charts:
        rects = ElementTree.fromstring(chart.svg()).findall("{http://www.w3.org/2000/svg}rect")
        widths = [float(rect.get("width", "0")) for rect in rects[1:]]
        assert widths[1] == pytest.approx(2 * widths[0], rel=0.01)


def test_every_engine_has_a_command_and_a_way_to_install_it(tmp_path: Path) -> None:
    forms = Forms(tmp_path / "folder", tmp_path / "a.gguf", tmp_path / "b.gguf")
    for engine in ENGINES:
        command = engine.command("program", forms, 2)
        assert command[0] == "program" and any("{port}" in word for word in command)
        assert engine.install.format(env="E")
    assert len({engine.name for engine in ENGINES}) == len(ENGINES)


def test_peers_that_are_absent_are_named_with_their_installation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert [engine.name for engine in ENGINES[1:] if installed(engine, tmp_path)] == []
    assert main(["--list", "--peers", str(tmp_path)]) == 0
    said = capsys.readouterr().err
    assert all(f"without {engine.name}:" in said for engine in ENGINES[1:])


def test_the_machine_is_described_and_probed() -> None:
    assert set(machine.describe()) >= {"processor", "cores", "features", "memory"}
    noise = machine.probe(repeats=3)
    assert 0 <= noise.busy <= 1 and noise.probe_ms > 0 and noise.probe_spread >= 0
