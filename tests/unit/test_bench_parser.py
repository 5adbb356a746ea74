"""bench/parser keeps medians with their spread, and tells which goals are missed."""

from __future__ import annotations

from bench.parser.__main__ import rows, table


def told(ns: float) -> dict[str, object]:
    return {"tokens": {"plain": {"ns": ns, "allocations": 2.0}}, "angles_ms": 1.5}


def test_rows_are_medians_and_their_range() -> None:
    found = {row["name"]: row for row in rows([told(50.0), told(60.0), told(90.0)], {"octavo": "1"}, "2026-01-01")}
    assert set(found) == {"plain_ns", "plain_allocations", "angles_ms"}
    plain = found["plain_ns"]
    assert (plain["value"], plain["unit"], plain["spread"], plain["goal"]) == (60.0, "ns/token", 0.6667, 200.0)
    assert (found["plain_allocations"]["unit"], found["plain_allocations"]["spread"]) == ("/token", 0.0)
    assert (found["angles_ms"]["unit"], found["angles_ms"]["goal"]) == ("ms", 5.0)


def test_the_table_has_a_line_for_each_kind() -> None:
    shown = table(rows([told(50.0)], {}, "2026-01-01"))
    assert "plain" in shown and "50" in shown and "2.00" in shown and "1.50 ms" in shown
