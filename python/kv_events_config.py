"""Where events of the prefix cache go."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

__all__ = ["KvEventsConfig"]


class KvEventsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Whether and where the prefix cache says what it holds (vLLM's fields)."""

    enable_kv_cache_events: bool = False
    publisher: Literal["zmq", "null"] = "zmq"  # "null": nowhere
    endpoint: str = "tcp://*:5557"  # of the PUB socket
    replay_endpoint: str | None = None  # of the ROUTER socket that sends again what was missed; None: none
    buffer_steps: Annotated[int, msgspec.Meta(ge=0)] = 10_000  # batches kept for replay
    hwm: Annotated[int, msgspec.Meta(ge=0)] = 100_000  # messages that queue for a subscriber before it loses some
    max_queue_size: Annotated[int, msgspec.Meta(ge=0)] = 100_000  # vLLM's; nothing queues here
    topic: str = ""
