"""What is plotted of a run and of a sweep, and the page around it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from octavo.benchmarks.svg import HEIGHT, WIDTH, Chart, Drawing, Series, Span
from octavo.errors import OctavoError

__all__ = ["in_flight", "run_charts", "sweep_charts", "write", "write_run", "write_sweep", "write_timeline"]

MAX_ROWS = 2000  # of a timeline


def write_run(path: Path, found: dict[str, Any], title: str) -> None:
    """Plot one run: latency against the load that each request met. Raises OctavoError."""
    write(path, title, run_charts(found), _caption(found))


def write_sweep(path: Path, title: str, load: str, rows: Sequence[tuple[float, dict[str, Any]]]) -> None:
    """Plot results against `load`, in the order of the rows. Raises OctavoError."""
    write(path, title, sweep_charts(load, rows), _caption(rows[0][1]) if rows else "")


def write_timeline(path: Path, found: dict[str, Any]) -> None:
    """Plot when each request waited, was computed and streamed. Raises OctavoError."""
    spans = []
    done = [i for i, latency in enumerate(found["latencies"]) if latency is not None][:MAX_ROWS]
    for row, i in enumerate(done):
        start, ttft, latency = found["start_times"][i], found["ttfts"][i], found["latencies"][i]
        spans.append(Span(row, max(start - found["queue_times"][i], 0.0), start, 4))
        spans.append(Span(row, start, start + ttft, 0))
        spans.append(Span(row, start + ttft, start + latency, 2))
    names = ("until the first token", "", "streaming", "", "waiting in the client")
    write(path, "Timeline", [Chart("Requests", "seconds", "request", spans=spans, names=names)], _caption(found))


def in_flight(starts: Sequence[float], ends: Sequence[float]) -> list[int]:
    """Return for each request how many were open when it started, itself included."""
    events = sorted([(at, 1, i) for i, at in enumerate(starts)] + [(at, 0, i) for i, at in enumerate(ends)])
    seen = [0] * len(starts)
    now = 0
    for _, opens, i in events:
        now += 1 if opens else -1
        if opens:
            seen[i] = now
    return seen


def run_charts(found: dict[str, Any]) -> list[Chart]:
    """Draw one run: TTFT and TPOT against the load met, the distribution of latencies, tokens over time."""
    done = [i for i, latency in enumerate(found["latencies"]) if latency is not None]
    starts = [found["start_times"][i] for i in done]
    ttfts = [found["ttfts"][i] for i in done]
    latencies = [found["latencies"][i] for i in done]
    lens = [found["output_lens"][i] for i in done]
    load = in_flight(starts, [start + latency for start, latency in zip(starts, latencies, strict=True)])
    tpots = [
        (n, 1000 * (latency - ttft) / (tokens - 1))
        for n, latency, ttft, tokens in zip(load, latencies, ttfts, lens, strict=True)
        if tokens > 1
    ]
    met = "requests in flight when it was sent"
    first = [(float(n), 1000 * ttft) for n, ttft in zip(load, ttfts, strict=True)]
    shares = [("TTFT", ttfts), ("E2EL", latencies)]
    distribution = [Series(name, _distribution(values), "line") for name, values in shares]
    return [
        Chart("Time to the first token", met, "ms", [Series("TTFT", first, "dots")]),
        Chart("Time per output token", met, "ms", [Series("TPOT", tpots, "dots")]),
        Chart("Share of requests answered within", "ms", "%", distribution, log_x=True),
        Chart("Output tokens over time", "seconds", "tokens/s", [Series("tokens/s", _rate(found, done), "line")]),
    ]


def _distribution(values: Sequence[float]) -> list[tuple[float, float]]:
    ordered = sorted(values)
    return [(1000 * value, 100 * (i + 1) / len(ordered)) for i, value in enumerate(ordered)]


def _rate(found: dict[str, Any], done: Sequence[int]) -> list[tuple[float, float]]:
    counts: dict[int, float] = {}
    for i in done:
        gaps = found["itls"][i]
        at = found["start_times"][i] + found["ttfts"][i]
        each = found["output_lens"][i] / (1 + len(gaps))
        for gap in (0.0, *gaps):
            at += gap
            counts[int(at)] = counts.get(int(at), 0.0) + each
    return [(second + 0.5, counts.get(second, 0.0)) for second in range(max(counts, default=-1) + 1)]


def sweep_charts(load: str, rows: Sequence[tuple[float, dict[str, Any]]]) -> list[Chart]:
    """Draw the points of a sweep: latencies and throughput against load, and latency against throughput."""

    def series(name: str, key: str, *, dashed: bool = False) -> Series:
        return Series(name, [(x, row[key]) for x, row in rows if row.get(key) is not None], dashed=dashed)

    charts = []
    for name, title in (("ttft", "Time to the first token"), ("tpot", "Time per output token"), ("e2el", "End to end")):
        lines = [series("median", f"median_{name}_ms")]
        for key in rows[0][1] if rows else ():
            match = re.fullmatch(rf"(p[0-9.]+)_{name}_ms", key)
            if match is not None:
                lines.append(series(match[1], key, dashed=True))
        if any(line.points for line in lines):
            charts.append(Chart(title, load, "ms", lines))
    charts.append(Chart("Output tokens", load, "tokens/s", [series("tokens/s", "output_throughput")]))
    trade = [
        (row["output_throughput"], row["median_tpot_ms"]) for _, row in rows if row.get("median_tpot_ms") is not None
    ]
    if trade:
        charts.append(Chart("What throughput costs", "output tokens/s", "median TPOT, ms", [Series("points", trade)]))
    return charts


def _caption(found: dict[str, Any]) -> str:
    words = [str(found["model_id"]), f"{found['completed']} requests", str(found["backend"]), str(found["date"])]
    if found["failed"]:
        words.insert(2, f"{found['failed']} failed")
    return " · ".join(words)


def write(path: Path, title: str, charts: Sequence[Drawing], caption: str = "") -> None:
    """Write charts as one page (.html) or one picture (.svg). Raises OctavoError."""
    drawn = [chart.svg() for chart in charts]
    if path.suffix == ".svg":
        text = _stacked(drawn)
    else:
        body = "\n".join(f"<figure>{svg}</figure>" for svg in drawn)
        text = _PAGE.format(title=escape(title), caption=escape(caption), body=body)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OctavoError(f"cannot write the plot to {path}: {error}") from None


def _stacked(drawn: Sequence[str]) -> str:
    rows = (len(drawn) + 1) // 2
    columns = min(len(drawn), 2)
    parts = [
        svg.replace("<svg ", f'<svg x="{(i % 2) * WIDTH}" y="{(i // 2) * HEIGHT}" ', 1) for i, svg in enumerate(drawn)
    ]
    size = f'width="{columns * WIDTH}" height="{rows * HEIGHT}" viewBox="0 0 {columns * WIDTH} {rows * HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n' + "\n".join(parts) + "\n</svg>\n"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1300px; color: #222; background: #fff }}
main {{ display: flex; flex-wrap: wrap; gap: 1rem }}
figure {{ margin: 0 }}
</style></head>
<body><h1>{title}</h1><p>{caption}</p><main>
{body}
</main></body></html>
"""
