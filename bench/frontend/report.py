"""Rounds -> medians and spread: one table, one JSON file."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.compare.machine import Noise

__all__ = ["ROWS", "rows", "table"]

#: name -> (unit, what it is)
ROWS: Mapping[str, tuple[str, str]] = {
    "requests_s": ("req/s", "chats of one token, closed loop"),
    "request_cpu_us": ("us", "CPU of one such request, kernel included"),
    "request_user_us": ("us", "without the kernel"),
    "request_allocations": ("", "allocations of a completion of one token"),
    "token_cpu_us": ("us", "CPU of one streamed token, kernel included"),
    "token_user_us": ("us", "without the kernel"),
    "token_allocations": ("", "allocations of one streamed token"),
    "token_instructions": ("", "instructions of one streamed token, without the kernel"),
    "tokens_per_event": ("", "in the streams of the three above"),
    "stream_tokens_s": ("tok/s", "streamed when more is offered"),
    "stream_events_s": ("/s", "events written meanwhile"),
    "capacity_requests_s": ("req/s", "chats of 64 tokens, the most"),
    "rate_requests_s": ("req/s", "90% of that, in an open loop:"),
    "ttft_p50_ms": ("ms", "TTFT at that rate, half"),
    "ttft_p99_ms": ("ms", "TTFT at that rate, 99%"),
    "health_p50_ms": ("ms", "/health while chats keep the frontend saturated, half"),
    "health_p99_ms": ("ms", "99%"),
    "rss_mib": ("MiB", "memory of the frontend at rest"),
    "aborted_growth_mib": ("MiB", "more of it after 10,000 streams that clients left"),
    "slow_client_kib": ("KiB", "more of it for each of 1,000 clients that read one byte a second"),
    "rss_end_mib": ("MiB", "when all of those have left"),
    "mock_token_us": ("us", "CPU of the scripted engine a token"),
    "load_token_us": ("us", "CPU of the load client a token"),
}


def spread(values: Sequence[float]) -> float:
    """Return (largest - smallest) / median."""
    middle = statistics.median(values)
    return (max(values) - min(values)) / abs(middle) if middle else 0.0


def rows(
    rounds: Sequence[Mapping[str, float]], goals: Mapping[str, float], versions: Mapping[str, str], date: str
) -> list[dict[str, Any]]:
    """Return the list that bench/results keeps."""
    found = []
    for name, (unit, _) in ROWS.items():
        values = [figures[name] for figures in rounds if name in figures]
        if values:
            row = {
                "name": name,
                "engine": "octavo-frontend",
                "value": round(statistics.median(values), 3),
                "unit": unit,
            }
            goal = {"goal": goals[name]} if name in goals else {}
            found.append(row | {"spread": round(spread(values), 4)} | goal | {"versions": dict(versions), "date": date})
    return found


def table(
    found: Sequence[Mapping[str, Any]],
    floors: Mapping[str, str],
    machine: Mapping[str, str],
    noise: Sequence[Noise],
    rounds: int,
) -> str:
    """Lay out the figures with the goal or the floor beside them, and what they were measured on."""
    lines = [
        f"{rounds} rounds; values are medians, spread is (largest - smallest) / median.",
        "",
        "| figure | value | spread | goal, floor | |",
        "|---|---|---|---|---|",
    ]
    for row in found:
        value = row["value"]
        shown = f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
        goal = f"goal ≤ {row['goal']:g}" if "goal" in row else floors.get(row["name"], "")
        meaning = ROWS[row["name"]][1]
        lines.append(f"| {row['name']} | {shown} {row['unit']} | {row['spread']:.0%} | {goal} | {meaning} |")
    busy = max(one.busy for one in noise)
    swing = max(one.probe_spread for one in noise)
    lines += [
        "",
        "Machine: " + ", ".join(f"{name} {value}" for name, value in machine.items()) + ".",
        f"Noise: up to {busy:.0%} of the cores were busy with other things between rounds; a fixed computation varied "
        f"by {swing:.0%}.",
    ]
    return "\n".join(lines)
