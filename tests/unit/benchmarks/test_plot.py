"""Charts: well-formed, in scale, and of the right numbers."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from octavo.benchmarks.plot import in_flight, run_charts, sweep_charts, write, write_timeline
from octavo.benchmarks.svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Chart, Series, ticks
from octavo.errors import OctavoError

FOUND: dict[str, Any] = {
    "model_id": "a<b", "backend": "openai", "date": "d", "completed": 2, "failed": 1,
    "start_times": [0.0, 0.5, 0.6], "ttfts": [0.2, None, 0.3], "latencies": [1.0, None, 0.3],
    "itls": [[0.4, 0.4], [], []], "output_lens": [6, 0, 1], "queue_times": [0.0, 0.0, 0.1],
}  # fmt: skip


@pytest.mark.parametrize(
    ("most", "expected"),
    [(0, [0, 0.5, 1.0]), (7.2, list(range(9))), (10, list(range(11))), (95, list(range(0, 101, 10)))],
)
def test_ticks_are_round_and_reach_the_most(most: float, expected: list[float]) -> None:
    found = ticks(most)
    if most:
        assert found == pytest.approx(expected)
    assert found[0] == 0 and found[-1] >= most and 3 <= len(found) <= 11


@pytest.mark.parametrize("log", [False, True])
def test_points_lie_within_the_axes_and_in_order(log: bool) -> None:
    chart = Chart("t & <t>", "x", "y", [Series("s", [(1, 3), (20, 50), (400, 7000)], "dots")], log_x=log, log_y=log)
    root = ElementTree.fromstring(chart.svg())
    circles = root.findall("{http://www.w3.org/2000/svg}circle")
    xs, ys = ([float(c.get(name, "nan")) for c in circles] for name in ("cx", "cy"))
    assert xs == sorted(xs) and ys == sorted(ys, reverse=True)
    assert all(LEFT <= x <= WIDTH - RIGHT for x in xs) and all(TOP <= y <= HEIGHT - BOTTOM for y in ys)


def test_empty_charts_can_be_drawn() -> None:
    for chart in (Chart("t", "x", "y"), Chart("t", "x", "y", [Series("s", [])], log_x=True)):
        ElementTree.fromstring(chart.svg())


def test_load_met_counts_the_request_itself_and_those_open() -> None:
    assert in_flight([0.0, 0.5, 2.0], [1.0, 3.0, 4.0]) == [1, 2, 2]
    assert in_flight([0.0, 1.0], [1.0, 2.0]) == [1, 1]


def points(chart: Chart) -> list[float]:
    """Return x and y of the first series in one row."""
    return [value for point in chart.series[0].points for value in point]


def test_a_run_leaves_failed_requests_out() -> None:
    ttft, tpot, shares, rate = run_charts(FOUND)
    assert points(ttft) == pytest.approx([1, 200, 2, 300])
    assert points(tpot) == pytest.approx([1, 800 / 5])  # one token has no TPOT
    assert points(shares) == pytest.approx([200, 50, 300, 100])
    assert sum(y for _, y in rate.series[0].points) == pytest.approx(7)


def test_a_sweep_plots_percentiles_that_are_there() -> None:
    rows = [(1.0, {"median_ttft_ms": 5.0, "p99_ttft_ms": 9.0, "output_throughput": 10.0, "median_tpot_ms": 2.0}),
            (2.0, {"median_ttft_ms": None, "p99_ttft_ms": None, "output_throughput": 0.0})]  # fmt: skip
    charts = sweep_charts("rate", rows)
    assert [chart.title for chart in charts][:1] == ["Time to the first token"]
    assert [series.name for series in charts[0].series] == ["median", "p99"]
    assert list(charts[0].series[0].points) == [(1.0, 5.0)]


def test_pages(tmp_path: Path) -> None:
    write_timeline(tmp_path / "t.html", FOUND)
    page = (tmp_path / "t.html").read_text()
    assert "a&lt;b" in page and "<script" not in page and "http://" not in page.replace("http://www.w3.org", "")
    write(tmp_path / "all.svg", "t", run_charts(FOUND))
    assert len(ElementTree.parse(tmp_path / "all.svg").getroot()) == 4
    (tmp_path / "file").write_text("")
    with pytest.raises(OctavoError, match="cannot write"):
        write(tmp_path / "file" / "x.html", "t", [])
