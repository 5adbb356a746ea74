"""The trainer's side of a weight update, for tests: weights in shared memory or over gloo, and the calls."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import torch
from safetensors.torch import load_file
from torch._C._distributed_c10d import BroadcastOptions

from octavo.workers.weight_transfer.gloo import gloo_group

__all__ = ["Trainer", "segment", "weights_of"]


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a saved model."""
    return load_file(folder / "model.safetensors")


@contextlib.contextmanager
def segment(weights: dict[str, torch.Tensor]) -> Iterator[dict[str, Any]]:
    """Put weights into shared memory; return the update_info."""
    name = f"octavo-test-{os.getpid()}-{secrets.token_hex(4)}"
    path = Path("/dev/shm") / name
    path.write_bytes(b"".join(tensor.contiguous().view(torch.uint8).numpy().tobytes() for tensor in weights.values()))
    try:
        yield {**_described(weights), "segment": name}
    finally:
        path.unlink()


def _described(weights: dict[str, torch.Tensor]) -> dict[str, Any]:
    return {
        "names": list(weights),
        "dtype_names": [str(tensor.dtype).removeprefix("torch.") for tensor in weights.values()],
        "shapes": [list(tensor.shape) for tensor in weights.values()],
    }


class Trainer:
    """Calls the routes of one server."""

    def __init__(self, url: str, headers: dict[str, str] | None = None) -> None:
        self._client = httpx.Client(base_url=url, timeout=60, headers=headers)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def post(self, path: str, body: Any = None, status: int = 200, **query: str) -> Any:
        """POST, with a body where there is one; return the answer, which must have the status."""
        answer = self._client.post(path, params=query or None, **({} if body is None else {"json": body}))
        assert answer.status_code == status, f"{path}: {answer.status_code} {answer.text}"
        return answer.json()

    def get(self, path: str) -> Any:
        """GET; return the answer."""
        answer = self._client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def update(self, weights: dict[str, torch.Tensor], version: str | None = None, **pause: str) -> None:
        """Give a server other weights through shared memory: pause, session, resume."""
        self.post("/pause", **({"mode": "keep"} | pause))
        self.post("/init_weight_transfer_engine", {"init_info": {"backend": "shm"}})
        self.post("/start_weight_update")
        with segment(weights) as info:
            self.post("/update_weights", {"update_info": info})
        self.post("/finish_weight_update", {} if version is None else {"weight_version": version})
        self.post("/resume")

    def update_over_gloo(self, weights: dict[str, torch.Tensor], ranks: int, version: str) -> None:
        """Give a server other weights as rank 0 of a group."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        place = {"master_address": "127.0.0.1", "master_port": port, "rank_offset": 1, "world_size": 1 + ranks}
        groups: list[Any] = []

        def broadcast() -> None:
            groups.append(gloo_group("127.0.0.1", port, 0, 1 + ranks, 60, server=True))
            options = BroadcastOptions()
            options.rootRank = 0
            started.wait()
            for tensor in weights.values():
                groups[0].broadcast([tensor.contiguous()], options).wait()

        started = threading.Event()
        thread = threading.Thread(target=broadcast)
        thread.start()
        self.post("/init_weight_transfer_engine", {"init_info": {"backend": "gloo", **place}})
        self.post("/start_weight_update")
        started.set()
        self.post("/update_weights", {"update_info": _described(weights)})
        thread.join()
        self.post("/finish_weight_update", {"weight_version": version})
