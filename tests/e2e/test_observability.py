"""The dashboard and the alert rules against what a server really exposes, and the other views of a running server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import yaml

from tests.e2e.server import Server

DOCS = Path(__file__).resolve().parents[2] / "docs" / "observability"
#: The scraper's own.
FOREIGN = {"up"}
#: What is told only of several engine cores.
OF_RANKS = "octavo:rank_"


def expressions(*, ranks: bool = False) -> list[str]:
    """Return the expressions of all panels, variables and alerts: those about several engine cores, or all others."""
    dashboard = json.loads((DOCS / "grafana.json").read_text(encoding="utf-8"))
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    found += [one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    for group in yaml.safe_load((DOCS / "alerts.yml").read_text(encoding="utf-8"))["groups"]:
        found += [rule["expr"] for rule in group["rules"]]
    return [expression for expression in found if (OF_RANKS in expression) == ranks]


def names(expression: str) -> set[str]:
    """Return the names of the metrics in an expression."""
    return set(re.findall(r"octavo:[a-z0-9_]+", expression))


def hold(expressions: list[str], server: Server) -> None:
    """Hold names and labels of expressions against what a server exposes."""
    text = server.get("/metrics").text
    exposed = set(re.findall(r"^(octavo:[a-z0-9_]+)[{ ]", text, re.MULTILINE))
    missing = {name for expression in expressions for name in names(expression) - exposed}
    assert not missing
    assert all(names(expression) or expression.split("{")[0] in FOREIGN for expression in expressions)
    for expression in expressions:
        grouped = re.findall(r"sum by \(([a-z_, ]+)\) \(?(?:rate\()?(octavo:[a-z0-9_]+)", expression)
        wanted = [(name, re.findall(r"[a-z_]+", labels)) for labels, name in grouped]
        for name, labels in re.findall(r"(octavo:[a-z0-9_]+)\{([^}]*)\}", expression):
            wanted.append((name, re.findall(r"([a-z_]+)(?:=~|=)", labels)))
        for name, labels in wanted:
            sample = re.search(rf"^{name}\{{([^}}]*)\}}", text, re.MULTILINE)
            assert sample is not None, name
            assert [label for label in labels if f"{label}=" not in sample[1]] == [], name


def test_every_expression_names_metrics_and_labels_that_the_server_exposes(server: Server) -> None:
    with server.client() as client:
        client.completions.create(model="tiny", prompt="a b c", max_tokens=3)
    hold(expressions(), server)
    assert len(expressions(ranks=True)) == 4  # held against a server that has several cores, in test_data_parallel


def test_top_and_server_info(server: Server) -> None:
    command = [sys.executable, "-m", "octavo", "top", "--url", server.url, "-n", "2", "--interval", "0.2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.count("tiny: ready") == 2
    info = server.get("/server_info").json()
    assert info["models"] == ["tiny"]
    assert info["ready"]
    assert info["engine"]["block_tokens"] == 16
    assert info["settings"]["edge"]["tls"] is None
