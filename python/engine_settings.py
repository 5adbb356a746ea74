"""From what a user set to what an engine core is told: the same for the server and the library."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from octavo.config import EngineConfig
from octavo.devices import (
    choose_device,
    choose_threads,
    chunk_align,
    default_batched_tokens,
    torch_has_cuda,
    visible_gpus,
)
from octavo.errors import ConfigError
from octavo.memory import available_bytes
from octavo.modelfiles import locate, resolve
from octavo.models.registry import find
from octavo.pooling import pooling_plan

if TYPE_CHECKING:
    from pathlib import Path

    from octavo.config import KvEventsConfig, ServeConfig
    from octavo.modelfiles import ModelFiles
    from octavo.wire.pooling_plan import PoolingPlan

__all__ = ["RESTART_WINDOW_S", "core_folder", "engine_config", "model_files", "tokenizer_source"]

#: Restarts within it count against `max_restarts`.
RESTART_WINDOW_S = 600.0
_DEFAULT_KV_BYTES = 4 << 30


def model_files(config: ServeConfig) -> ModelFiles:
    """Return the files of the model that a user asked for, fetched if need be. Raises ModelError as `resolve`."""
    path = locate(config.model, config.revision or None)
    overrides = msgspec.json.decode(config.hf_overrides) if config.hf_overrides else None
    return resolve(str(path), config.load_format, overrides, config.trust_remote_code)


def tokenizer_source(config: ServeConfig) -> str | None:
    """Return what `export_tokenizer` is to take. Raises ConfigError if a tokenizer is named and none wanted."""
    if not config.skip_tokenizer_init:
        return config.tokenizer
    if config.tokenizer:
        raise ConfigError(
            f"--skip-tokenizer-init and --tokenizer {config.tokenizer} contradict each other: leave one out",
            "tokenizer",
        )
    return None


def engine_config(
    config: ServeConfig, files: ModelFiles, folder: Path, endpoint: str = "", weight_store: str = "", rank: int = 0
) -> EngineConfig:
    """Return the configuration of an engine core for a model, of that data-parallel rank.

    `folder` is the run folder, `endpoint` where a frontend listens: empty for one in the same process. `weight_store`:
    the folder of this server alone for copies of updated weights; empty: none are kept.
    Raises ConfigError for a context beyond the model's, and for a device that is not there.
    """
    gpus = () if config.device == "cpu" else visible_gpus()
    workers = config.tensor_parallel_size * config.data_parallel_size
    device = choose_device(config.device, workers, gpus, bool(gpus) and torch_has_cuda())
    plan = pooling_plan(config, files)
    if config.enable_expert_parallel:
        _check_experts(config, files, plan)
    context = _context(config, files, plan)
    batched_tokens = config.max_num_batched_tokens or default_batched_tokens(device, gpus)
    if plan is not None and plan.encoder:
        batched_tokens = _whole(config, config.max_model_len or context, batched_tokens)
    return EngineConfig(
        model=str(files.path),
        model_name=config.names[0],
        model_context_len=context,
        run_dir=str(core_folder(folder, config, rank)),
        frontend_endpoint=endpoint,
        rank=rank,
        data_parallel_size=config.data_parallel_size,
        expert_folder=str(folder) if config.enable_expert_parallel else "",
        tokenizer_dir=str(folder / "tokenizer"),
        dtype=_dtype(config, plan, device),
        load_format=config.load_format,
        hf_overrides=config.hf_overrides,
        seed=config.seed,
        max_model_len=config.max_model_len,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=batched_tokens,
        chunk_align=chunk_align(device, batched_tokens),
        scheduling_policy=config.scheduling_policy,
        long_prefill_token_threshold=config.long_prefill_token_threshold,
        max_long_partial_prefills=config.max_long_partial_prefills,
        max_num_waiting=config.max_num_waiting,
        plans_in_flight=config.plans_in_flight,
        kv_events=_kv_events(config, rank),
        block_size=config.block_size,
        logprobs_mode=config.logprobs_mode,
        enable_prefix_caching=config.enable_prefix_caching,
        device=device,
        kv_cache_bytes=_kv_bytes(config, device),
        gpu_memory_utilization=config.gpu_memory_utilization,
        graph_sizes=_graph_sizes(config),
        tensor_parallel_size=config.tensor_parallel_size,
        threads=config.threads or choose_threads(0, workers),
        worker_timeout_s=config.worker_timeout,
        max_restarts=config.max_restarts,
        restart_window_s=RESTART_WINDOW_S,
        weight_store=weight_store,
        log_level=config.log_level,
        pooling=plan,
    )


def core_folder(folder: Path, config: ServeConfig, rank: int) -> Path:
    """Return where the engine core of a rank keeps sockets and journal: an only one in the run folder itself."""
    return folder if config.data_parallel_size == 1 else folder / f"r{rank}"


def _dtype(config: ServeConfig, plan: PoolingPlan | None, device: str) -> str:
    """Return the dtype of weights: encoders are small, and CPUs multiply float32 as fast."""
    if config.dtype != "auto":
        return config.dtype
    return "float32" if plan is not None and plan.encoder and device == "cpu" else "bfloat16"


def _context(config: ServeConfig, files: ModelFiles, plan: PoolingPlan | None) -> int:
    """Return the longest sequence in tokens that is served unless a user says otherwise.

    Raises ConfigError where a user says more than the model can.
    """
    if config.max_model_len is not None and config.max_model_len > files.context_len:
        raise ConfigError(
            f"--max-model-len {config.max_model_len} is beyond the {files.context_len} tokens that the model was made "
            "for (its config.json says so); give that or less",
            "max_model_len",
        )
    told = plan.max_seq_len if plan is not None else None
    return min(files.context_len, told) if told else files.context_len


def _check_experts(config: ServeConfig, files: ModelFiles, plan: PoolingPlan | None) -> None:
    """Raise ConfigError unless there are experts, and ranks to spread them over."""
    flag, param = "--enable-expert-parallel", "enable_expert_parallel"
    if config.data_parallel_size == 1 or config.data_parallel_multi_port_external_lb:
        raise ConfigError(
            f"{flag} spreads experts over the engine cores of one server: give --data-parallel-size 2 or more, without "
            "--data-parallel-multi-port-external-lb",
            param,
        )
    if config.tensor_parallel_size > 1:
        raise ConfigError(
            f"{flag} works with one worker an engine core; leave --tensor-parallel-size "
            f"{config.tensor_parallel_size} out and raise --data-parallel-size instead",
            "tensor_parallel_size",
        )
    if plan is not None or getattr(find(files.architecture).parse(files.config), "moe", None) is None:
        what = "serves vectors" if plan is not None else "has no experts"
        raise ConfigError(f"{flag}: {files.architecture} {what}; leave the flag out", param)


def _graph_sizes(config: ServeConfig) -> tuple[int, ...] | None:
    """Return the sizes of steps to record; none where rows of other ranks come into a step."""
    if config.enforce_eager or config.enable_expert_parallel:
        return ()
    return tuple(sorted(set(config.cuda_graph_sizes))) or None


def _whole(config: ServeConfig, context: int, batched_tokens: int) -> int:
    """Return the tokens of a step that holds the longest text whole. Raises ConfigError if it may not."""
    if config.max_num_batched_tokens is not None and config.max_num_batched_tokens < context:
        raise ConfigError(
            f"--max-num-batched-tokens {config.max_num_batched_tokens} is less than the {context} tokens of the "
            "longest text, and an encoder takes texts whole; raise it, or lower --max-model-len",
            "max_num_batched_tokens",
        )
    return max(batched_tokens, context)


def _kv_events(config: ServeConfig, rank: int) -> KvEventsConfig | None:
    """Return where KV events of a rank go; None where they are not wanted. Raises ConfigError if there can be none."""
    events = config.kv_events_config
    if events is None or not events.enable_kv_cache_events or events.publisher == "null":
        return None
    if not config.enable_prefix_caching:
        raise ConfigError("--kv-events-config: there are no events without the prefix cache", "kv_events_config")
    replay = events.replay_endpoint
    return msgspec.structs.replace(
        events, endpoint=_of_rank(events.endpoint, rank), replay_endpoint=replay and _of_rank(replay, rank)
    )


def _of_rank(endpoint: str, rank: int) -> str:
    """Return a rank's own endpoint: the next port of TCP for each rank, as in vLLM; another name for others."""
    head, colon, port = endpoint.rpartition(":")
    if endpoint.startswith("tcp://") and port.isdigit():
        return f"{head}{colon}{int(port) + rank}"
    return f"{endpoint}_dp{rank}" if rank else endpoint


def _kv_bytes(config: ServeConfig, device: str) -> int | None:
    """Return the size of the KV cache of each rank; None where the workers must find it out."""
    if config.kv_cache_memory_bytes is not None or device != "cpu":
        return config.kv_cache_memory_bytes
    free = available_bytes()
    if free is None:
        return _DEFAULT_KV_BYTES
    return min(_DEFAULT_KV_BYTES, free // (4 * config.tensor_parallel_size * config.data_parallel_size))
