"""Clients of octavo's gRPC API: `Client`, and `AsyncClient` for asyncio. docs/grpc.md shows them."""

from __future__ import annotations

from octavo.client.aio import AsyncClient
from octavo.client.connection import Connection
from octavo.client.cuda_weights import cuda_weights
from octavo.client.errors import CallError
from octavo.client.requests import Prompt, generate_request
from octavo.client.shared_weights import described, shared_weights
from octavo.client.sync import Client

__all__ = [
    "AsyncClient",
    "CallError",
    "Client",
    "Connection",
    "Prompt",
    "cuda_weights",
    "described",
    "generate_request",
    "shared_weights",
]
