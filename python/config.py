"""Settings: one definition from which flags, validation, `--help` and docs/configuration.md come."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from octavo.edge_config import EdgeConfig, EdgeSettings
from octavo.errors import ConfigError
from octavo.kv_events_config import KvEventsConfig
from octavo.pooler_config import PoolerConfig, read_pooler_config
from octavo.setting import Setting, choice, count, flag, float_type, or_none, power_of_two, seconds, setting, switched
from octavo.setting_values import file, json_object, share
from octavo.wire.pooling_plan import PoolingPlan  # noqa: TC001  # msgspec reads it

__all__ = [
    "EngineConfig",
    "FrontendConfig",
    "KvEventsConfig",
    "ServeConfig",
    "Setting",
    "build",
    "flag",
    "library_settings",
    "settings",
]


class EngineConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an engine core and its workers are told (engine.json in the run folder)."""

    model: str  # path of a model folder or a .gguf file
    model_name: str  # the first served name
    model_context_len: int  # from the model's config
    run_dir: str
    frontend_endpoint: str  # "ipc:///…/frontend.sock"
    link_key: str = ""  # hexadecimal; shows the frontend that this is its engine
    tokenizer_dir: str = ""  # as in FrontendConfig; for grammars
    rank: int = 0  # data-parallel rank
    data_parallel_size: int = 1
    expert_folder: str = ""  # where the cores among which experts are spread find each other; empty: they are not
    dtype: str = "bfloat16"
    device: str = "cpu"
    load_format: str = "auto"
    hf_overrides: str = ""  # a JSON object: keys of config.json to replace
    seed: int = 0
    max_model_len: int | None = None  # None: as much of the model's context as the KV pool holds
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    chunk_align: int = 1  # tokens at multiples of which a prompt is cut that does not fit a step
    block_size: int = 16
    kv_cache_bytes: int | None = 1 << 30  # of each rank; None: what the workers find that a GPU has left
    gpu_memory_utilization: float = 0.92  # share of a GPU for weights, steps and KV cache
    graph_sizes: tuple[int, ...] | None = None  # of recorded steps; None: a table; (): none
    enable_prefix_caching: bool = True
    scheduling_policy: str = "fcfs"  # or "priority"
    long_prefill_token_threshold: int | None = None  # None: half of a step; 0: no prompt is long
    max_long_partial_prefills: int = 1
    max_num_waiting: int | None = None  # requests in the engine beyond those that can start at once
    plans_in_flight: int | None = None  # 1 … 3; None: see engine_core/window.py
    kv_events: KvEventsConfig | None = None  # None: nobody is told
    logprobs_mode: str = "raw_logprobs"
    tensor_parallel_size: int = 1
    threads: int = 0  # per worker; 0: all cores but one, divided by ranks
    worker_timeout_s: float = 300.0
    max_restarts: int = 5  # of the worker group, within restart_window_s
    restart_window_s: float = 600.0
    weight_store: str = ""  # folder for copies of updated weights; empty: none are kept
    pooling: PoolingPlan | None = None  # None: tokens are made
    log_level: str = "info"


class FrontendConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the Rust frontend is told (frontend.json in the run folder)."""

    listen_fd: int
    grpc_listen_fd: int | None = None  # None: no gRPC
    engine_endpoints: list[str]  # "ipc:///…/frontend.sock", by data-parallel rank
    tokenizer_dir: str  # tokenizer.json, tokenizer_config.json, generation_config.json, the chat template
    served_model_names: list[str]
    link_key: str = ""  # as in EngineConfig; empty: whoever connects is taken for the engine
    seed: int | None = None  # of the generator that requests without a seed draw theirs from; None: the system
    max_open_requests: int = 1024  # more get 429
    max_logprobs: int = 20  # alternatives that a request may ask for with each token; -1: any number
    replay_timeout_s: float = 300.0
    shutdown_timeout_s: float = 0.0  # running requests get so long after SIGTERM
    scheduling_policy: str = "fcfs"  # or "priority": requests may name one
    tool_call_parser: str | None = None  # name of a format, or "auto"
    reasoning_parser: str | None = None  # likewise
    enable_auto_tool_choice: bool = False
    format_files: list[str] = []
    api_keys: list[str] = []  # every role but admin
    api_key_file: str | None = None  # lines of ROLE[,ROLE] KEY
    log_level: str = "info"
    trust_request_chat_template: bool = False  # whether requests may bring a chat_template
    enable_prompt_embeds: bool = False  # whether prompts of completions may be vectors
    enable_per_request_metrics: bool = False  # whether chats and completions say when their tokens came
    response_store: str | None = None  # file of the responses that are kept; None: memory
    response_store_max_bytes: int = 256 << 20  # of all of them; 0: none are kept
    response_store_max_age_s: float = 30 * 86400.0
    otlp_traces_endpoint: str | None = None  # of a collector, OTLP/HTTP; None: no traces
    edge: EdgeConfig = EdgeConfig()
    pooling: PoolingPlan | None = None  # None: tokens are made


#: Log probabilities or logits; before or behind all that changes them.
LOGPROBS_MODES = ("raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits")


def _kv_events(text: str) -> KvEventsConfig:
    try:
        return msgspec.json.decode(text, type=KvEventsConfig)
    except msgspec.DecodeError as error:
        raise ValueError(f"must be a JSON object with vLLM's fields: {error}") from None


def _or_all(text: str) -> int:
    return -1 if text == "-1" else count(0)(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig(EdgeSettings):
    """All that `octavo serve` can be told."""

    model: str = setting(
        "",
        str,
        "Model",
        "model folder (config.json and safetensors), .gguf file, name on the Hub (ORG/NAME, or ORG/NAME:Q4_K_M for one "
        ".gguf file of it), or smollm2",
        positional=True,
    )
    served_model_name: tuple[str, ...] = setting(
        (), str, "Model", "names that clients may use for the model; default: MODEL as given", "NAME", many=True
    )
    dtype: str = setting(
        "auto", float_type, "Model", "auto (bfloat16; float32 for encoders on CPUs), bfloat16 or float32", "TYPE"
    )
    runner: str = setting(
        "auto",
        choice("auto", "generate", "pooling"),
        "Model",
        "generate: tokens; pooling: embeddings, labels, scores; auto: what the model is made for",
        "RUNNER",
    )
    convert: str = setting(
        "auto",
        choice("auto", "none", "embed", "classify", "reward"),
        "Model",
        "what a model that pools gives: embed, classify (its head's labels), reward (its head's values for each token)",
        "KIND",
    )
    pooler_config: PoolerConfig | None = setting(  # noqa: RUF009  # a field, as all others
        None,
        read_pooler_config,
        "Model",
        'how vectors are made, as JSON with vLLM\'s fields, such as \'{"seq_pooling_type": "MEAN"}\'; default: what '
        "the model's files say",
        "JSON",
        alias="--override-pooler-config",
    )
    load_format: str = setting(
        "auto",
        choice("auto", "dummy"),
        "Model",
        "auto, or dummy: random weights from config.json alone; without a tokenizer, ids are the words w0, w1, ...",
        "FORMAT",
    )
    revision: str = setting(
        "", str, "Model", "branch, tag or commit of a model on the Hub; default: its main branch", "NAME"
    )
    tokenizer: str = setting(
        "", str, "Model", "folder, tokenizer.json, .gguf file or Hub name of a tokenizer; default: the model's", "PATH"
    )
    skip_tokenizer_init: bool = switched(
        False, "Model", "read no tokenizer: prompts are token ids, which outputs show as the words w0, w1, ..."
    )
    chat_template: str = setting(
        "", str, "Model", "file with a chat template, or the template itself; default: the model's", "PATH"
    )
    hf_overrides: str = setting("", json_object, "Model", "keys of config.json to replace, as JSON", "JSON")
    trust_remote_code: bool = switched(
        False, "Model", "accepted for vLLM's sake: octavo never runs code that a model brings along"
    )
    device: str = setting(
        "auto", choice("auto", "cpu", "cuda"), "Model", "auto (GPUs where there are any), cpu or cuda", "DEVICE"
    )
    max_model_len: int | None = setting(
        None,
        or_none("auto", count(1)),
        "Model",
        "longest prompt plus answer in tokens; auto: the model's context, or what the KV cache holds if that is less",
        "N|auto",
    )
    seed: int = setting(
        0, count(0, 2**63 - 1), "Model", "of dummy weights and of the seeds that requests without one are given"
    )
    generation_config: str = setting(
        "auto",
        str,
        "Model",
        "where defaults of sampling come from: auto (the model's generation_config.json), vllm (none are taken), or a "
        "folder with such a file",
        "auto|vllm|FOLDER",
    )
    override_generation_config: str = setting(
        "", json_object, "Model", "defaults of sampling that replace those, such as '{\"temperature\": 0.5}'", "JSON"
    )
    max_logprobs: int = setting(
        20, _or_all, "Model", "log probabilities that a request may ask for with each token; -1: any number"
    )
    logprobs_mode: str = setting(
        "raw_logprobs",
        choice(*LOGPROBS_MODES),
        "Model",
        "what log probabilities are taken from: raw_logprobs, raw_logits (the model's), or processed_logprobs, "
        "processed_logits (behind penalties, temperature, top_k and top_p)",
        "MODE",
    )
    host: str = setting(
        "127.0.0.1", str, "Server", "address to listen on; 0.0.0.0 for all: then give --api-key too", "ADDR"
    )
    port: int = setting(8000, count(0, 65535), "Server", "port to listen on; 0: a free one, printed when ready")
    api_key: tuple[str, ...] = setting(
        (),
        str,
        "Server",
        "keys that clients send as `Authorization: Bearer KEY`; default: none is asked for (OCTAVO_API_KEY keeps a "
        "key out of the list of processes)",
        "KEY",
        many=True,
    )
    api_key_file: str | None = setting(
        None,
        or_none("none", str),
        "Server",
        "file with lines of ROLE[,ROLE] KEY, read again when it changes; roles: inference, render, metrics, admin, all",
        "FILE|none",
    )
    data_parallel_size: int = setting(
        1,
        count(1, 64),
        "Server",
        "engine cores behind the frontend, each with a copy of the model and its own cache; requests go where their "
        "prefix is and least waits",
    )
    enable_expert_parallel: bool = switched(
        False,
        "Server",
        "with --data-parallel-size: spread the experts of a mixture of experts over the engine cores, not copies of "
        "all",
    )
    data_parallel_multi_port_external_lb: bool = switched(
        False,
        "Server",
        "start --data-parallel-size complete servers, on ports from --port on, for a load balancer before them",
    )
    data_parallel_supervisor_port: int = setting(
        9256, count(1, 65535), "Server", "port that then tells by /ready whether all of them are ready"
    )
    max_open_requests: int = setting(1024, count(1), "Limits", "requests held at once; more are answered with 429")
    response_store: str | None = setting(
        None, or_none("auto", str), "Server", "file that keeps responses; auto: it goes with the server", "FILE|auto"
    )
    response_store_max_bytes: int = setting(
        256 << 20, count(0), "Server", "responses kept, in bytes; the oldest go first; 0: none are kept"
    )
    response_store_max_age: float = setting(30 * 86400.0, seconds, "Server", "how long a response is kept", "SECONDS")
    replay_timeout: float = setting(
        300.0, seconds, "Server", "how long a stream waits for an engine that is being restarted", "SECONDS"
    )
    shutdown_timeout: float = setting(
        0.0, seconds, "Server", "how long running requests may go on after Ctrl-C or SIGTERM", "SECONDS"
    )
    tool_call_parser: str = setting(
        "",
        str,
        "Chat",
        "format of the model's tool calls (hermes, qwen3_coder, ...), or auto: what its template and tokens say",
        "NAME",
    )
    reasoning_parser: str = setting(
        "", str, "Chat", "format of the model's reasoning (qwen3, deepseek_r1, ...), or auto", "NAME"
    )
    enable_auto_tool_choice: bool = switched(
        False, "Chat", "let the model decide about tool calls (tool_choice auto); needs a parser"
    )
    format_file: tuple[Path, ...] = setting(
        (), file, "Chat", "files of further output formats; their names win", "PATH", many=True
    )
    trust_request_chat_template: bool = switched(
        False, "Chat", "render with the chat_template that a request brings; a template is a program of its author's"
    )
    enable_prompt_embeds: bool = switched(
        False, "Model", "take prompt_embeds of /v1/completions: a vector for each token in place of text"
    )
    enable_per_request_metrics: bool = switched(
        False, "Chat", "put metrics into chats and completions: queue, first token, tokens per second"
    )
    max_num_seqs: int = setting(256, count(1, 65536), "Engine", "requests that run at once")
    enable_prefix_caching: bool = switched(True, "Engine", "reuse KV blocks of prompts that begin alike")
    max_num_batched_tokens: int | None = setting(
        None,
        or_none("auto", count(1)),
        "Engine",
        "tokens computed in one step; longer prompts are prefilled in chunks; auto: 2048 on CPUs, 8192 on GPUs, 16640 "
        "on those with 70 GiB or more",
        "N|auto",
    )
    scheduling_policy: str = setting(
        "fcfs",
        choice("fcfs", "priority"),
        "Engine",
        "fcfs: in the order of arrival; priority: by the requests' field `priority` first, lower is earlier",
        "POLICY",
    )
    long_prefill_token_threshold: int | None = setting(
        None,
        or_none("auto", count(0)),
        "Engine",
        "prompts with more tokens to compute get no more than this in a step that others want too; auto: half of "
        "--max-num-batched-tokens; 0: no limit",
        "N|auto",
    )
    max_long_partial_prefills: int = setting(
        1, count(1), "Engine", "prompts longer than that which are computed at a time; shorter ones go ahead"
    )
    kv_events_config: KvEventsConfig | None = setting(  # noqa: RUF009  # a field, as all others
        None,
        _kv_events,
        "Engine",
        'JSON that says where changes of the prefix cache are published, such as {"enable_kv_cache_events": true, '
        '"endpoint": "tcp://127.0.0.1:5557", "replay_endpoint": "tcp://127.0.0.1:5558"}',
        "JSON",
    )
    plans_in_flight: int | None = setting(
        None,
        or_none("auto", count(1, 3)),
        "Engine",
        "steps that are planned before their results are there; auto: 2 on GPUs, 3 with less than 6 GiB of weights, "
        "1 on CPUs, which core and workers share",
        "N|auto",
    )
    max_num_waiting: int | None = setting(
        None,
        or_none("auto", count(0)),
        "Engine",
        "requests that wait in the engine for a place at most; more are answered with 429; auto: as many as "
        "--max-open-requests lets in",
        "N|auto",
    )
    block_size: int = setting(16, power_of_two(1, 1024), "Engine", "tokens in one KV block (a power of two)")
    kv_cache_memory_bytes: int | None = setting(
        None,
        or_none("auto", count(1)),
        "Engine",
        "memory of the KV cache on each rank, such as 4G; auto: a quarter of the free memory, at most 4G; on GPUs what "
        "--gpu-memory-utilization leaves",
        "BYTES|auto",
    )
    gpu_memory_utilization: float = setting(
        0.92, share, "Engine", "share of a GPU's memory for weights, steps and KV cache together", "SHARE"
    )
    enforce_eager: bool = switched(False, "Engine", "launch each kernel of a step by itself: record no CUDA graphs")
    cuda_graph_sizes: tuple[int, ...] = setting(
        (),
        count(1, 8192),
        "Engine",
        "rows and tokens of the steps to record as CUDA graphs; default: a table up to 512",
        many=True,
        alias="--cudagraph-capture-sizes",
    )
    tensor_parallel_size: int = setting(1, count(1, 64), "Engine", "worker processes that share each layer")
    threads: int = setting(
        0, count(0, 1024), "Engine", "CPU threads of each worker; 0: one core is left free, the rest divided"
    )
    worker_timeout: float = setting(
        300.0, seconds, "Engine", "a worker without progress for so long is taken for hung and restarted", "SECONDS"
    )
    process_timeout: float = setting(
        60.0,
        seconds,
        "Server",
        "an engine core or frontend that stands still for so long is taken for hung and restarted; 0: never",
        "SECONDS",
    )
    max_restarts: int = setting(
        5, count(0), "Engine", "restarts of workers, or of an engine core, within ten minutes before giving up"
    )
    weight_store: Path | None = setting(  # noqa: RUF009  # a field, as all others
        None,
        or_none("none", Path),
        "Server",
        "folder for copies of updated weights, which restarted workers load; without one they wait for a trainer",
        "PATH|none",
    )
    log_level: str = setting(
        "info", choice("debug", "info", "warning", "error"), "Log", "debug, info, warning or error", "LEVEL"
    )
    otlp_traces_endpoint: str | None = setting(
        None,
        or_none("none", str),
        "Server",
        "HTTP address of an OpenTelemetry collector, such as http://127.0.0.1:4318/v1/traces, that gets all traces",
        "URL|none",
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The names that clients may use."""
        return self.served_model_name or (self.model,)


def settings() -> tuple[Setting, ...]:
    """Return the description of every field of ServeConfig, in order; those of the edge come last."""
    edge = {field.name for field in dataclasses.fields(EdgeSettings)}
    fields = sorted(dataclasses.fields(ServeConfig), key=lambda field: field.name in edge)
    return tuple(Setting(field.name, field.default, **field.metadata) for field in fields)


def library_settings() -> tuple[Setting, ...]:
    """Return those settings that mean something without a server."""
    return tuple(one for one in settings() if one.group not in ("Server", "TLS", "Limits"))


def build(given: dict[str, str | Sequence[str]]) -> ServeConfig:
    """Build the configuration from the words a user typed, by field name.

    Raises ConfigError that names the flag, the value and what is allowed.
    """
    values: dict[str, Any] = {}
    for one in settings():
        if one.name in given:
            values[one.name] = _parse(one, given[one.name])
    config = ServeConfig(**values)
    if config.enable_auto_tool_choice and not config.tool_call_parser:
        message = "--enable-auto-tool-choice needs --tool-call-parser: name the format of the model's calls, or auto"
        raise ConfigError(message, "enable_auto_tool_choice")
    config.edge()  # raises where its flags contradict each other
    return config


def _parse(one: Setting, words: str | Sequence[str]) -> Any:
    texts = [words] if isinstance(words, str) else list(words)
    parsed = []
    for text in texts:
        try:
            parsed.append(one.parse(text))
        except ValueError as error:
            raise ConfigError(f"{one.flag} {text}: {error}", one.name) from None
    return tuple(parsed) if one.many else parsed[0]
