"""`octavo bench throughput | latency`: figures, flags."""

from __future__ import annotations

import argparse

import numpy as np
import pytest

from octavo.benchmarks import latency, throughput
from octavo.benchmarks.cli import main
from octavo.benchmarks.offline import add_engine_flags, random_prompts


def test_latency_figures_are_of_the_batches_that_ran() -> None:
    found = latency.figures([1.0, 2.0, 3.0, 10.0])
    assert found["avg_latency"] == 4.0
    assert found["latencies"] == [1.0, 2.0, 3.0, 10.0]
    assert found["percentiles"]["50"] == 2.5
    assert found["percentiles"]["75"] == pytest.approx(4.75)  # linear interpolation, as numpy and vLLM have it
    text = latency.table(found | {"batch_size": 8, "input_len": 3, "output_len": 20})
    assert "4.0000 s  average latency of 4 batches" in text
    assert "200.00 ms per output token" in text
    assert "40.0 output tokens/s" in text


def test_throughput_counts_requests_and_tokens_apart() -> None:
    found = throughput.figures(2.0, 10, 100, 60)
    assert (found["requests_per_second"], found["tokens_per_second"], found["output_tokens_per_second"]) == (5, 80, 30)
    assert found["total_num_tokens"] == 160
    assert "5.00 requests/s" in throughput.table(found | {"input_len": 10, "output_len": 6})


def test_random_prompts_differ_and_come_again_with_the_seed() -> None:
    one = random_prompts(np.random.default_rng(3), 4, 20, 100)
    assert one == random_prompts(np.random.default_rng(3), 4, 20, 100)
    assert one[0] != one[1]
    assert all(len(p["prompt_token_ids"]) == 20 and max(p["prompt_token_ids"]) < 100 for p in one)


def test_engine_flags_are_those_of_serve() -> None:
    parser = argparse.ArgumentParser()
    add_engine_flags(parser)
    given = vars(parser.parse_args(["--model", "m", "--kv-cache-memory-bytes", "1G"]))
    assert (given["model"], given["kv_cache_memory_bytes"], given["dtype"]) == ("m", "1G", None)
    assert "port" not in given


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["latency"], "--model"),
        (["latency", "--model", "m", "--batch-size", "0"], "invalid count of at least 1 value: '0'"),
        (["throughput", "--model", "m", "--num-prompts", "x"], "invalid count of at least 1 value: 'x'"),
        (["throughput", "--model", "/no/such", "--dtype", "float16"], "--dtype float16"),
        (["throughput", "--model", "/no/such"], "does not exist"),
    ],
)
def test_wrong_usage(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: object = main(words)
    except SystemExit as end:
        code = end.code
    assert code in (1, 2)
    assert message in capsys.readouterr().err
