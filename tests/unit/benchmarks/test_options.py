"""Flags: a command line written for `vllm bench serve` runs unchanged."""

from __future__ import annotations

import argparse
import math
import shlex
from typing import Any

import pytest

from octavo.benchmarks.options import DATASET_NAMES, ServeOptions, add_flags, from_namespace
from octavo.errors import ConfigError

#: The flags of the Python `vllm bench serve` that concern generation over the OpenAI APIs and our data sets.
VLLM_FLAGS = [
    "--append-result",
    "--backend",
    "--base-url",
    "--burstiness",
    "--chat-template-kwargs",
    "--custom-output-len",
    "--dataset-name",
    "--dataset-path",
    "--disable-shuffle",
    "--disable-tqdm",
    "--endpoint",
    "--extra-body",
    "--frequency-penalty",
    "--goodput",
    "--header",
    "--host",
    "--ignore-eos",
    "--input-len",
    "--insecure",
    "--label",
    "--logprobs",
    "--lora-assignment",
    "--lora-modules",
    "--max-concurrency",
    "--metadata",
    "--metric-percentiles",
    "--min-p",
    "--model",
    "--no-oversample",
    "--num-prompts",
    "--num-warmups",
    "--output-len",
    "--percentile-metrics",
    "--plot-timeline",
    "--port",
    "--prefix-repetition-num-prefixes",
    "--prefix-repetition-output-len",
    "--prefix-repetition-prefix-len",
    "--prefix-repetition-suffix-len",
    "--presence-penalty",
    "--profile",
    "--ramp-up-end-rps",
    "--ramp-up-start-rps",
    "--ramp-up-strategy",
    "--random-input-len",
    "--random-output-len",
    "--random-prefix-len",
    "--random-range-ratio",
    "--ready-check-timeout-sec",
    "--repetition-penalty",
    "--request-id-prefix",
    "--request-rate",
    "--result-dir",
    "--result-filename",
    "--save-detailed",
    "--save-result",
    "--seed",
    "--served-model-name",
    "--sharegpt-output-len",
    "--skip-chat-template",
    "--skip-tokenizer-init",
    "--temperature",
    "--tokenizer",
    "--tokenizer-mode",
    "--top-k",
    "--top-p",
    "--trust-remote-code",
    "--use-beam-search",
    "--probe-request-rate",
    "--no-stream",
    "--timeline-itl-thresholds",
]


def parse(line: str) -> ServeOptions:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(parser)
    return from_namespace(vars(parser.parse_args(shlex.split(line))))


def test_every_flag_of_vllm_is_known() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    known = {option for action in parser._actions for option in action.option_strings}
    assert set(VLLM_FLAGS) - known == set()


def test_a_command_line_of_vllm() -> None:
    options = parse(
        "--backend vllm --model meta/x --endpoint /v1/completions --dataset-name random --random-input-len 1024 "
        "--random-output-len 128 --random-range-ratio 0.1 --num-prompts 200 --request-rate 4 --burstiness 0.5 "
        "--max-concurrency 64 --goodput ttft:200 tpot:30 --percentile-metrics ttft,tpot,itl,e2el "
        "--metric-percentiles 50,90,99.9 --ignore-eos --seed 3 --save-result --result-dir out --header a=1 b=2=3 "
        "--extra-body '{\"min_tokens\": 5}' --temperature 0 --metadata version=0.3 --disable-tqdm --use-beam-search"
    )
    assert options.arrivals.rate == 4 and options.arrivals.burstiness == 0.5
    assert options.objectives == pytest.approx({"ttft": 0.2, "tpot": 0.03})
    assert options.percentiles == [50, 90, 99.9]
    assert options.headers == {"a": "1", "b": "2=3"}
    assert options.sampling == {"temperature": 0, "ignore_eos": True, "min_tokens": 5}


def test_defaults() -> None:
    options = parse("")
    assert (options.url, options.num_prompts, options.request_rate) == ("http://127.0.0.1:8000", 1000, math.inf)
    assert options.sampling == {"ignore_eos": True}  # random prompts: answers of the asked length
    assert options.reported == ["ttft", "tpot", "itl", "e2el"] and options.percentiles == [90, 99]
    assert parse("--dataset-name sharegpt --dataset-path x").sampling == {}
    assert parse("--dataset-name multi-turn --dataset-path x").sampling == {}


def test_general_lengths_go_to_every_data_set() -> None:
    options = parse("--input-len 5 --output-len 6")
    assert options.random_input_len == 5
    lengths = (options.random_output_len, options.sharegpt_output_len, options.custom_output_len)
    assert (*lengths, options.prefix_repetition_output_len) == (6, 6, 6, 6)


def test_logprobs_are_asked_as_each_api_wants_it() -> None:
    assert parse("--logprobs 2").sampling["logprobs"] == 2
    chat = parse("--backend openai-chat --logprobs 2").sampling
    assert (chat["logprobs"], chat["top_logprobs"]) == (True, 2)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--request-rate 0", "--request-rate 0.0"),
        ("--max-concurrency 0", "--max-concurrency 0"),
        ("--num-prompts 0", "--num-prompts 0"),
        ("--goodput fast", "'fast'"),
        ("--goodput itl:3", "'itl:3'"),
        ("--metric-percentiles 99,101", "101"),
        ("--percentile-metrics ttft,speed", "'speed'"),
        ("--header nonsense", "'nonsense'"),
        ("--dataset-name random --dataset-path x.json", "x.json"),
        ("--plot x.png", "x.png"),
        ("--ramp-up-strategy linear", "--ramp-up-start-rps"),
    ],
)
def test_what_cannot_be_is_refused_by_name(line: str, says: str) -> None:
    with pytest.raises(ConfigError, match="--") as caught:
        parse(line)
    assert says in caught.value.message


def test_every_data_set_name_is_served() -> None:
    from octavo.benchmarks.datasets import DATASETS

    assert set(DATASETS) == set(DATASET_NAMES)


def test_ranges_of_lengths_are_given_together_or_apart() -> None:
    assert parse("--random-range-ratio 0.3").random_range_ratio == (0.3, 0.3)
    assert parse("""--random-range-ratio '{"input": 0.1, "output": 0.4}'""").random_range_ratio == (0.1, 0.4)


def test_ipv6_hosts_get_brackets() -> None:
    options: Any = parse("--host ::1 --port 9")
    assert options.url == "http://[::1]:9"
