"""`octavo top`: what it makes of metrics."""

from __future__ import annotations

import pytest

from octavo.cli.prometheus import parse
from octavo.cli.top import view

BEFORE = """\
# HELP octavo:generation_tokens Generated tokens
octavo:generation_tokens_total{model_name="m \\"x\\""} 100
octavo:request_success_total{model_name="m",finished_reason="stop"} 1
octavo:request_success_total{model_name="m",finished_reason="error"} 0
octavo:time_to_first_token_seconds_bucket{le="0.1",model_name="m"} 10
octavo:time_to_first_token_seconds_bucket{le="0.2",model_name="m"} 10
octavo:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 10
octavo:prefix_cache_queries_total{model_name="m"} 100
octavo:prefix_cache_hits_total{model_name="m"} 100
"""
NOW = """\
octavo:generation_tokens_total{model_name="m"} 300
octavo:request_success_total{model_name="m",finished_reason="stop"} 4
octavo:request_success_total{model_name="m",finished_reason="error"} 1
octavo:time_to_first_token_seconds_bucket{le="0.1",model_name="m"} 10
octavo:time_to_first_token_seconds_bucket{le="0.2",model_name="m"} 20
octavo:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 20
octavo:prefix_cache_queries_total{model_name="m"} 200
octavo:prefix_cache_hits_total{model_name="m"} 125
octavo:engine_ready{model_name="m"} 1
octavo:num_requests_waiting{model_name="m"} 7
octavo:kv_cache_usage_perc{model_name="m"} 0.25
octavo:odd{model_name="m"} NaN
this is no sample
"""


def test_samples_are_read_and_summed() -> None:
    now = parse(NOW)
    assert now.total("octavo:request_success_total") == 5
    assert now.total("octavo:request_success_total", finished_reason="error") == 1
    assert now.total("octavo:absent") == 0
    assert parse(BEFORE).samples[0][1] == {"model_name": 'm \\"x\\"'}


def test_quantiles_are_those_since_the_earlier_scrape() -> None:
    now, before = parse(NOW), parse(BEFORE)
    name = "octavo:time_to_first_token_seconds"
    assert now.quantile(name, 0.5, before) == pytest.approx(0.15)
    assert before.quantile(name, 0.5) == pytest.approx(0.05)
    assert now.quantile(name, 0.99, now) is None
    assert now.quantile("octavo:absent", 0.5) is None


def test_the_view_shows_rates_since_the_last_look() -> None:
    text = "\n".join(view(parse(NOW), parse(BEFORE), 2.0))
    assert "m: ready" in text
    assert "output tokens    100.0" in text
    assert "requests   2.0" in text
    assert "prefix hits   25 %" in text
    assert "150.0" in text
    first = "\n".join(view(parse(NOW), None, 0.0))
    assert "output tokens        -" in first
    assert "waiting      7" in first


def test_a_server_without_an_engine_can_be_looked_at() -> None:
    text = "\n".join(view(parse(""), None, 0.0))
    assert "no engine is ready" in text
