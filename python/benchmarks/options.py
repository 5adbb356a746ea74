"""The flags of `octavo bench serve`: those of `vllm bench serve`, by name and meaning, and a few of our own."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from octavo.benchmarks.arrivals import Arrivals, RampUp
from octavo.benchmarks.openai import BACKENDS
from octavo.benchmarks.stats import LATENCIES
from octavo.errors import ConfigError

__all__ = ["ServeOptions", "add_flags", "from_namespace"]

DATASET_NAMES = ("random", "sharegpt", "prefix_repetition", "multi-turn", "custom")


def _flag(default: Any, parse: Callable[[str], Any] | None, group: str, help: str, **more: Any) -> Any:
    """Define a flag; `parse` None is a switch, `nargs` and `choices` go to argparse."""
    info = {"parse": parse, "group": group, "help": help, "more": more}
    return dataclasses.field(default=default, metadata=info)


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _ratios(text: str) -> tuple[float, float]:
    """Read one ratio for both, or a JSON object with one each."""
    value = json.loads(text)
    if isinstance(value, dict):
        return float(value.get("input", 0)), float(value.get("output", 0))
    return float(value), float(value)


_LOAD, _SERVER, _SAMPLING, _REPORT = "load", "server", "sampling parameters", "report"
_RANDOM, _PREFIX, _TURNS, _FILES = (
    "random data set",
    "prefix_repetition data set",
    "conversations",
    "data set",
)
_MORE = {"nargs": "+"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """All that `octavo bench serve` can be told."""

    backend: str = _flag(
        "openai", str, _SERVER, "vllm or openai: completions; openai-chat: chat completions", choices=tuple(BACKENDS)
    )
    base_url: str | None = _flag(None, str, _SERVER, "such as http://127.0.0.1:8000; instead of --host and --port")
    host: str = _flag("127.0.0.1", str, _SERVER, "host of the server")
    port: int = _flag(8000, int, _SERVER, "port of the server")
    endpoint: str | None = _flag(None, str, _SERVER, "path of the API; default: the backend's")
    model: str | None = _flag(None, str, _SERVER, "name of the model; default: the first of the server's /v1/models")
    served_model_name: str | None = _flag(None, str, _SERVER, "name to use in requests; default: --model")
    lora_modules: tuple[str, ...] = _flag(
        (), str, _SERVER, "model names to take instead, one for each request", **_MORE
    )
    lora_assignment: str = _flag("random", str, _SERVER, "how they are chosen", choices=("random", "round-robin"))
    header: tuple[str, ...] = _flag((), str, _SERVER, "KEY=VALUE to send with each request", nargs="*")
    extra_body: Mapping[str, Any] | None = _flag(None, _object, _SERVER, "JSON object to merge into each request")
    insecure: bool = _flag(False, None, _SERVER, "do not verify the server's certificate")
    ready_check_timeout_sec: float = _flag(
        0.0, float, _SERVER, "wait so many seconds until a request succeeds; 0: do not wait"
    )
    request_timeout_sec: float = _flag(6 * 3600.0, float, _SERVER, "a request that takes longer has failed")
    request_id_prefix: str | None = _flag(None, str, _SERVER, "start of the x-request-id of each request")
    profile: bool = _flag(False, None, _SERVER, "POST /start_profile before and /stop_profile after")

    num_prompts: int = _flag(1000, int, _LOAD, "number of prompts, or of conversations")
    request_rate: float = _flag(math.inf, float, _LOAD, "requests per second; inf: all at once")
    burstiness: float = _flag(1.0, float, _LOAD, "1: Poisson; less: in bursts; more: more even")
    max_concurrency: int | None = _flag(None, int, _LOAD, "at most so many requests at once; default: no limit")
    num_warmups: int = _flag(0, int, _LOAD, "requests before the measurement starts")
    ramp_up_strategy: str | None = _flag(
        None, str, _LOAD, "let the rate grow, from --ramp-up-start-rps to -end-rps", choices=("linear", "exponential")
    )
    ramp_up_start_rps: float | None = _flag(None, float, _LOAD, "first rate")
    ramp_up_end_rps: float | None = _flag(None, float, _LOAD, "last rate")
    probe_request_rate: float = _flag(
        0.0, float, _LOAD, "small requests per second beside the load, whose latency is told apart"
    )
    seed: int = _flag(0, int, _LOAD, "prompts and times are the same for the same seed")

    dataset_name: str = _flag("random", str, _FILES, "where the prompts come from", choices=DATASET_NAMES)
    dataset_path: str | None = _flag(None, str, _FILES, "file of the data set")
    no_oversample: bool = _flag(False, None, _FILES, "do not repeat prompts of a data set that has too few")
    disable_shuffle: bool = _flag(False, None, _FILES, "keep the order of the file")
    skip_chat_template: bool = _flag(False, None, _FILES, "custom: send prompts as they are")
    chat_template_kwargs: Mapping[str, Any] | None = _flag(
        None, _object, _FILES, "custom: JSON object for the chat template"
    )
    custom_output_len: int = _flag(256, int, _FILES, "output tokens of each request; -1: as the line says")
    sharegpt_output_len: int | None = _flag(None, int, _FILES, "output tokens; default: as many as recorded")
    input_len: int | None = _flag(None, int, _FILES, "input length, whatever the data set calls it")
    output_len: int | None = _flag(None, int, _FILES, "output length, whatever the data set calls it")
    tokenizer: str | None = _flag(None, str, _FILES, "folder, tokenizer.json, .gguf or Hub name; default: the model's")
    tokenizer_mode: str = _flag("auto", str, _FILES, "auto and hf are the same here", choices=("auto", "hf", "slow"))
    skip_tokenizer_init: bool = _flag(False, None, _FILES, "use no tokenizer: prompts of common words")
    trust_remote_code: bool = _flag(False, None, _FILES, "accepted; no code is ever fetched")

    random_input_len: int = _flag(1024, int, _RANDOM, "input tokens, on average")
    random_output_len: int = _flag(128, int, _RANDOM, "output tokens, on average")
    random_range_ratio: tuple[float, float] = _flag(
        (0.0, 0.0), _ratios, _RANDOM, 'lengths vary by so much up and down, 0 to 1; or {"input": X, "output": Y}'
    )
    random_prefix_len: int = _flag(0, int, _RANDOM, "tokens in front that all prompts share")
    prefix_repetition_prefix_len: int = _flag(256, int, _PREFIX, "tokens of a prefix")
    prefix_repetition_suffix_len: int = _flag(256, int, _PREFIX, "tokens of each prompt's own")
    prefix_repetition_num_prefixes: int = _flag(10, int, _PREFIX, "number of prefixes")
    prefix_repetition_output_len: int = _flag(128, int, _PREFIX, "output tokens")

    multi_turn: bool = _flag(False, None, _TURNS, "the same as --dataset-name multi-turn, also for sharegpt")
    multi_turn_num_turns: int = _flag(3, int, _TURNS, "turns of each conversation")
    multi_turn_min_turns: int = _flag(0, int, _TURNS, "fewest turns; 0: --multi-turn-num-turns")
    multi_turn_max_turns: int = _flag(0, int, _TURNS, "most turns; 0: --multi-turn-num-turns, or all of a file's")
    multi_turn_concurrency: int | None = _flag(None, int, _TURNS, "conversations at once; default: --max-concurrency")
    multi_turn_delay_ms: float = _flag(0.0, float, _TURNS, "pause before each further turn")
    per_turn_input_len: int = _flag(0, int, _TURNS, "input tokens of further turns; 0: --random-input-len")

    temperature: float | None = _flag(
        None, float, _SAMPLING, "0: always the likeliest token; default: the server's, as for all of these"
    )
    top_p: float | None = _flag(None, float, _SAMPLING, "share of probability to draw from")
    top_k: int | None = _flag(None, int, _SAMPLING, "tokens to draw from")
    min_p: float | None = _flag(None, float, _SAMPLING, "least share of the likeliest token's probability")
    frequency_penalty: float | None = _flag(None, float, _SAMPLING, "for each time that a token was said")
    presence_penalty: float | None = _flag(None, float, _SAMPLING, "for tokens that were said")
    repetition_penalty: float | None = _flag(None, float, _SAMPLING, "for tokens of prompt and output")
    logprobs: int | None = _flag(None, int, _SAMPLING, "ask for so many logprobs a token")
    ignore_eos: bool = _flag(False, None, _SAMPLING, "go on to the asked length; always so for random prompts")

    percentile_metrics: str = _flag("ttft,tpot,itl,e2el", str, _REPORT, f"which of {','.join(LATENCIES)} to report")
    metric_percentiles: str = _flag("90,99", str, _REPORT, "which percentiles")
    goodput: tuple[str, ...] = _flag((), str, _REPORT, "objectives in ms, such as ttft:200 tpot:30 e2el:5000", **_MORE)
    max_failures: int = _flag(0, int, _REPORT, "exit with 1 when more requests than this failed")
    save_result: bool = _flag(False, None, _REPORT, "write the result as JSON")
    save_detailed: bool = _flag(False, None, _REPORT, "with every request's times, lengths, text and error")
    append_result: bool = _flag(False, None, _REPORT, "add it to the file, as a further line")
    result_dir: str | None = _flag(None, str, _REPORT, "folder of the result; default: the current one")
    result_filename: str | None = _flag(None, str, _REPORT, "its name; default: from label, load, model and date")
    label: str | None = _flag(None, str, _REPORT, "name of this run; default: the backend")
    metadata: tuple[str, ...] = _flag((), str, _REPORT, "KEY=VALUE to keep in the result", nargs="*")
    plot: str | None = _flag(None, str, _REPORT, "write a plot of latency against load: FILE.html or FILE.svg")
    plot_timeline: bool = _flag(False, None, _REPORT, "write when each request ran, as HTML beside the result")
    disable_tqdm: bool = _flag(False, None, _REPORT, "show no progress")

    @property
    def url(self) -> str:
        """The base URL of the server."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.base_url or f"http://{host}:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """The headers of --header."""
        return pairs(self.header, "header")

    @property
    def arrivals(self) -> Arrivals:
        """When requests are sent."""
        ramp = None
        if self.ramp_up_strategy is not None:
            if self.ramp_up_start_rps is None or self.ramp_up_end_rps is None:
                raise ConfigError("--ramp-up-strategy needs --ramp-up-start-rps and --ramp-up-end-rps")
            strategy: Any = self.ramp_up_strategy
            ramp = RampUp(strategy, self.ramp_up_start_rps, self.ramp_up_end_rps)
        return Arrivals(self.request_rate, self.burstiness, ramp)

    @property
    def objectives(self) -> dict[str, float]:
        """Goodput's limits in seconds, by name."""
        found = {}
        for word in self.goodput:
            name, _, value = word.partition(":")
            try:
                found[name] = float(value) / 1000
            except ValueError:
                raise ConfigError(f"--goodput {word!r} is not like ttft:200", "goodput") from None
            if name not in ("ttft", "tpot", "e2el") or found[name] < 0:
                raise ConfigError(f"--goodput {word!r}: take ttft, tpot or e2el, and 0 or more ms", "goodput")
        return found

    @property
    def percentiles(self) -> list[float]:
        """The percentiles to report."""
        try:
            found = [float(word) for word in self.metric_percentiles.split(",")]
        except ValueError:
            found = [-1.0]
        if not all(0 <= p <= 100 for p in found):
            raise ConfigError(f"--metric-percentiles {self.metric_percentiles!r} is not like 50,90,99.9")
        return found

    @property
    def reported(self) -> list[str]:
        """The latencies to report."""
        names = [name.strip() for name in self.percentile_metrics.split(",")]
        for name in names:
            if name not in LATENCIES:
                raise ConfigError(f"--percentile-metrics {name!r}: take some of {', '.join(LATENCIES)}")
        return names

    @property
    def sampling(self) -> dict[str, Any]:
        """The fields that go into each request, apart from prompt and length."""
        names = (
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "frequency_penalty",
            "presence_penalty",
            "repetition_penalty",
        )
        fields: dict[str, Any] = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.logprobs is not None:
            chat = {"logprobs": True, "top_logprobs": self.logprobs}
            fields |= chat if self.backend == "openai-chat" else {"logprobs": self.logprobs}
        if self.ignore_eos:
            fields["ignore_eos"] = True
        return fields | dict(self.extra_body or {})

    def check(self) -> None:
        """Refuse what cannot be. Raises ConfigError."""
        self.arrivals.check()
        _ = self.objectives, self.percentiles, self.reported, self.headers, pairs(self.metadata, "metadata")
        limits = {"max-concurrency": self.max_concurrency, "multi-turn-concurrency": self.multi_turn_concurrency}
        for name, value in limits.items():
            if value is not None and value < 1:
                raise ConfigError(f"--{name} {value} must be at least 1", name)
        if self.probe_request_rate < 0:
            raise ConfigError(f"--probe-request-rate {self.probe_request_rate} must be 0 or more", "probe-request-rate")
        if self.num_prompts < 1 and self.dataset_name != "custom":
            raise ConfigError(f"--num-prompts {self.num_prompts} must be at least 1", "num-prompts")
        if self.dataset_path is not None and self.dataset_name in ("random", "prefix_repetition"):
            raise ConfigError(
                f"--dataset-name {self.dataset_name} makes its own prompts; for {self.dataset_path} take sharegpt, "
                "multi-turn or custom",
                "dataset-path",
            )
        if self.plot is not None and not self.plot.endswith((".html", ".svg")):
            raise ConfigError(f"--plot {self.plot} must end in .html or .svg", "plot")


def pairs(words: tuple[str, ...], name: str) -> dict[str, str]:
    """Read KEY=VALUE words. Raises ConfigError."""
    found = {}
    for word in words:
        key, mark, value = word.partition("=")
        if not mark or not key.strip():
            raise ConfigError(f"--{name} {word!r} is not like KEY=VALUE", name)
        found[key.strip()] = value.strip()
    return found


#: Flags of data sets and backends that are not offered, and of things that have no effect here: a command line that has
#: them still runs. Their values are not looked at.
_WITHOUT_EFFECT = {
    "no-stream": 0, "use-beam-search": 0, "plot-dataset-stats": 0, "timeline-itl-thresholds": 1, "no-reranker": 0,
    "random-batch-size": 1, "enable-multimodal-chat": 0, "hf-name": 1, "hf-subset": 1, "hf-split": 1,
    "hf-output-len": 1, "sonnet-input-len": 1, "sonnet-output-len": 1, "sonnet-prefix-len": 1,
    "spec-bench-output-len": 1, "spec-bench-category": 1, "blazedit-min-distance": 1, "blazedit-max-distance": 1,
    "no-self-timed": 0, "custom-ensure-client-side-data": 0, "asr-max-audio-len-sec": 1, "asr-min-audio-len-sec": 1,
    "bfcl-categories": 1, "random-mm-base-items-per-request": 1, "random-mm-bucket-config": 1,
    "random-mm-limit-mm-per-prompt": 1, "random-mm-num-mm-items-range-ratio": 1, "speed-bench-category": 1,
    "speed-bench-dataset-subset": 1, "speed-bench-output-len": 1, "timed-trace-chunk-hash-size": 1,
    "timed-trace-label-hash-ids": 1, "timed-trace-label-input-length": 1, "timed-trace-label-output-length": 1,
    "timed-trace-label-timestamp": 1, "timed-trace-sec-multiplier": 1,
}  # fmt: skip


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags to a parser. What is not given is not in the namespace."""
    groups: dict[str, argparse._ArgumentGroup] = {}
    for field in dataclasses.fields(ServeOptions):
        info = field.metadata
        if info["group"] not in groups:
            groups[info["group"]] = parser.add_argument_group(info["group"])
        flag = "--" + field.name.replace("_", "-")
        plain = field.default in (None, (), "", False) or isinstance(field.default, tuple)
        help = info["help"] + ("" if plain else f" (default: {field.default})")
        settings: dict[str, Any] = {"dest": field.name, "default": argparse.SUPPRESS, "help": help.replace("%", "%%")}
        if info["parse"] is None:
            settings["action"] = "store_true"
        else:
            settings |= {"type": info["parse"], "metavar": "X"} | info["more"]
            if "choices" in info["more"]:
                del settings["metavar"]
        groups[info["group"]].add_argument(flag, **settings)
    for name, words in _WITHOUT_EFFECT.items():
        hidden: dict[str, Any] = {} if words else {"action": "store_true"}
        parser.add_argument(
            f"--{name}", dest="without_effect", help=argparse.SUPPRESS, default=argparse.SUPPRESS, **hidden
        )


def from_namespace(given: dict[str, Any]) -> ServeOptions:
    """Build and check the options from what was given. Raises ConfigError."""
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items() if k != "without_effect"}
    options = ServeOptions(**given)
    changes: dict[str, Any] = {}
    if options.input_len is not None:
        changes["random_input_len"] = options.input_len
    if options.output_len is not None:
        names = ("random_output_len", "sharegpt_output_len", "custom_output_len", "prefix_repetition_output_len")
        changes |= dict.fromkeys(names, options.output_len)
    if options.dataset_name in ("random", "multi-turn") and options.dataset_path is None:
        changes["ignore_eos"] = True  # or the answers end long before the asked length
    options = dataclasses.replace(options, **changes)
    options.check()
    return options
