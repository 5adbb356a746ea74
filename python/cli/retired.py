"""Flags and variables of vLLM that are not octavo's: each with what to do instead."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["RETIRED", "VARIABLES", "notes"]

#: Flag -> what replaces it. docs/from-vllm.md shows the table.
RETIRED: dict[str, str] = {
    "--calculate-kv-scales": "leave it out; scales of a quantised KV cache come from the checkpoint",
    "--override-attention-dtype": "leave it out; attention runs in --dtype",
    "--quantization": "leave it out; the format is read from the model's files. For bitsandbytes there is no plugin: "
    "serve a GGUF file or the unquantised model",
    "-q": "leave it out; the format is read from the model's files",
    "--task": "leave it out; what a model can do follows from its architecture",
    "--enable-chunked-prefill": "leave it out; prompts are always prefilled in chunks of --max-num-batched-tokens",
    "--num-scheduler-steps": "leave it out; steps overlap by themselves",
    "--multi-step-stream-outputs": "leave it out; tokens are streamed as they come",
    "--use-v2-block-manager": "leave it out; there is one block manager",
    "--max-seq-len-to-capture": "leave it out; recorded steps cover every length",
    "--preemption-mode": "leave it out; preempted requests are computed again, their prefix comes from the cache",
    "--swap-space": "leave it out; nothing is swapped",
    "--disable-log-requests": "leave it out; requests are not logged unless asked for",
    "--enable-prompt-tokens-details": "leave it out; usage always tells the cached tokens of a prompt",
    "--disable-frontend-multiprocessing": "leave it out; the frontend is a process of its own",
    "--api-server-count": "leave it out; one Rust frontend answers for all",
    "--async-scheduling": "leave it out; steps overlap by themselves",
    "--guided-decoding-backend": "leave it out; there is one grammar engine",
    "--distributed-executor-backend": "leave it out; workers are processes of their own on one host",
    "--compilation-config": "leave it out; nothing is compiled at the start",
    "-O": "leave it out; nothing is compiled at the start",
    "--collect-detailed-traces": "leave it out; traces have spans of the engine's queue, prefill and decode anyway",
    "--enable-lora": "adapters are not offered yet",
    "--speculative-config": "speculation is not offered yet; answers are the same without it",
    "--pipeline-parallel-size": "not offered yet; --tensor-parallel-size shares each layer",
    "--data-parallel-hybrid-lb": "leave it out; one frontend balances all engine cores of this machine",
    "--data-parallel-rank": "leave it out; --data-parallel-multi-port-external-lb starts a server for each rank",
}

#: Variable -> what replaces it.
VARIABLES: dict[str, str] = {
    "VLLM_USE_V1": "there is one engine",
    "VLLM_USE_V2_MODEL_RUNNER": "there is one model runner",
    "VLLM_ATTENTION_BACKEND": "kernels are chosen by device and shape",
    "VLLM_USE_RUST_FRONTEND": "the frontend is always the Rust one",
    "VLLM_USE_RUST_BENCH": "`octavo bench` is one program",
    "VLLM_USE_FLASHINFER_SAMPLER": "sampling has one implementation a device",
    "VLLM_WORKER_MULTIPROC_METHOD": "workers are programs of their own",
    "VLLM_CPU_KVCACHE_SPACE": "give --kv-cache-memory-bytes, such as 4G",
    "VLLM_CPU_OMP_THREADS_BIND": "give --threads",
    "VLLM_LOGGING_LEVEL": "give --log-level",
    "VLLM_ENGINE_READY_TIMEOUT_S": "the start has no time limit; /ready tells when it is done",
    "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": "an engine that dies is restarted, and its requests go on",
    "VLLM_BATCH_INVARIANT": "not offered yet",
    "VLLM_HOST_IP": "give --host",
    "VLLM_PORT": "give --port",
    "VLLM_API_KEY": "set OCTAVO_API_KEY, or give --api-key",
}


def notes(environment: Mapping[str, str]) -> list[str]:
    """Return one line for each variable of vLLM that is set: what stands in its place, or that it has no effect."""
    ours = "octavo reads no VLLM_ variables"
    return [
        f"{name} has no effect: {VARIABLES.get(name, ours)}" for name in sorted(environment) if name.startswith("VLLM_")
    ]
