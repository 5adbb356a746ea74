"""Settings: one definition from which flags, validation, `--help` and docs/configuration.md come."""

from __future__ import annotations

import msgspec

__all__ = ["EngineConfig", "FrontendConfig"]


class EngineConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an engine core and its workers are told (engine.json in the run folder)."""

    model: str  # path of a model folder or a .gguf file
    model_name: str  # the first served name
    model_context_len: int  # from the model's config
    run_dir: str
    frontend_endpoint: str  # "ipc:///…/frontend.sock"
    rank: int = 0  # data-parallel rank
    dtype: str = "bfloat16"
    device: str = "cpu"
    load_format: str = "auto"
    seed: int = 0
    max_model_len: int | None = None  # None: as much of the model's context as the KV pool holds
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    block_size: int = 16
    kv_cache_bytes: int = 1 << 30
    enable_prefix_caching: bool = True
    tensor_parallel_size: int = 1
    threads: int = 0  # per worker; 0: cores divided by ranks
    worker_timeout_s: float = 300.0
    max_restarts: int = 5  # of the worker group, within restart_window_s
    restart_window_s: float = 600.0
    log_level: str = "info"


class FrontendConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the Rust frontend is told (frontend.json in the run folder)."""

    listen_fd: int
    engine_endpoint: str  # "ipc:///…/frontend.sock"
    tokenizer_dir: str  # tokenizer.json, tokenizer_config.json, generation_config.json, the chat template
    served_model_names: list[str]
    seed: int | None = None  # of the generator that requests without a seed draw theirs from; None: the system
    max_open_requests: int = 1024  # more get 429
    replay_timeout_s: float = 300.0
    shutdown_timeout_s: float = 0.0  # running requests get so long after SIGTERM
    log_level: str = "info"
