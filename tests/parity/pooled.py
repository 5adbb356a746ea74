"""An engine core and a worker that pools, in one process, set up from flags as a server is."""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from octavo.config import build
from octavo.engine_core.core import Core
from octavo.engine_core.kv_plan import plan_kv
from octavo.engine_core.sched.budget import SchedLimits
from octavo.engine_settings import engine_config, model_files
from octavo.wire.frontend import AddRequest, Pooling, SamplingParams
from octavo.wire.worker import Init, StepResult
from octavo.workers.model_body import ModelBody

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from octavo.wire.frontend import Delta

__all__ = ["EMBED", "RAW", "PooledEngine", "Vectors"]

#: Every token's hidden state as it is.
RAW = Pooling("token_embed", False)
EMBED = Pooling("embed")

Vectors = np.ndarray[tuple[int, int], np.dtype[np.float32]]


@dataclass
class _Seen:
    vectors: Vectors
    cached: int


class PooledEngine:
    """Drives a real core and a real worker, `window` plans ahead of the results."""

    def __init__(self, model: Path, *, window: int = 1, **flags: str) -> None:
        """`flags` are those of `octavo serve`, by field name."""
        words = {"dtype": "float32", "device": "cpu", "kv_cache_memory_bytes": "4M", "max_num_seqs": "8", **flags}
        settings = build({"model": str(model), **words})
        config = engine_config(settings, model_files(settings), model)
        assert config.pooling is not None
        self.plan, self.window = config.pooling, window
        self.body = ModelBody()
        context = config.max_model_len or config.model_context_len
        ready = self.body.init(
            Init(
                0, 1, "", config.model, config.dtype, "cpu", "auto", 0, context, config.max_num_seqs,
                config.max_num_batched_tokens, threads=1, hf_overrides=config.hf_overrides,
                pooling=config.pooling,
            )
        )  # fmt: skip
        kv = plan_kv(config, ready, window, 0)
        self.body.allocate(kv.allocate)
        limits = SchedLimits(
            config.max_num_seqs,
            config.max_num_batched_tokens,
            kv.max_model_len,
            window,
            vocab_size=ready.vocab_size,
            pools=True,
            pools_last=self.plan.pools_last,
            whole_prompts=self.plan.encoder,
        )
        self.core = Core(limits, kv.cache)
        self.chunked = 0  # rows that did not reach the end of their tokens
        self._next = 0

    def run(self, asks: list[tuple[list[int], Pooling]]) -> list[Vectors]:
        """Return the vectors of all requests, which come at once."""
        return [seen.vectors for seen in self.seen(asks)]

    def seen(self, asks: list[tuple[list[int], Pooling]]) -> list[Any]:
        """As `run`, with how many tokens came from the cache."""
        first = self._next
        for prompt, pooling in asks:
            packed = array("i", prompt).tobytes()
            message = AddRequest(self._next, 1, "r", packed, b"", SamplingParams(0, 1), self._next, pooling=pooling)
            assert self.core.add(message) is None
            self._next += 1
        found: dict[int, _Seen] = {}
        flying: deque[StepResult] = deque()
        while not self.core.idle:
            plan = self.core.next_plan()
            self.core.check()
            if plan is not None:
                self.chunked += plan.samples.count(0)
                result = self.body.step(plan)
                assert isinstance(result, StepResult)
                flying.append(result)
            if flying and (plan is None or len(flying) == self.window):
                for delta in self.core.result(flying.popleft()):
                    found[delta.id] = _taken(delta)
        return [found[number] for number in range(first, self._next)]


def _taken(delta: Delta) -> _Seen:
    assert delta.finish is not None and delta.finish.reason == "stop" and not delta.tokens
    assert delta.pooled is not None
    values = np.frombuffer(delta.pooled.values, dtype="<f4").reshape(-1, delta.pooled.width)
    return _Seen(values, delta.cached_tokens or 0)
