"""Back ends of weight updates: the registry, what each refuses, handles as JSON, broadcasts by their common path."""

from __future__ import annotations

import socket
import threading
from importlib.metadata import EntryPoint
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import BroadcastOptions

from octavo.client.cuda_weights import cuda_weights, ipc_handle
from octavo.errors import ControlError
from octavo.workers.weight_transfer import backend
from octavo.workers.weight_transfer.backend import BACKENDS, Place, connect
from octavo.workers.weight_transfer.cuda_ipc import choose_handles
from octavo.workers.weight_transfer.description import TensorDescription
from octavo.workers.weight_transfer.gloo import gloo_group
from octavo.workers.weight_transfer.ipc_handle import IpcHandle, read_handle

CPU = Place(0, 1)
UUID = "a1b2"
#: What torch's reduce_tensor gives for a tensor of 6 float32 in the middle of a storage.
ARGUMENTS = (
    torch.Tensor,
    torch.Size([2, 3]),
    (3, 1),
    4,
    torch.UntypedStorage,
    torch.float32,
    0,
    b"\x00m" * 32,
    64,
    512,
    False,
    b"/torch_12_34_0",
    7,
    b"e" * 64,
    True,
)
TENSOR = TensorDescription("w", torch.float32, (2, 3))


def refusal(info: dict[str, Any]) -> ControlError:
    with pytest.raises(ControlError) as caught:
        connect(info, CPU)
    assert caught.value.code == "invalid"
    return caught.value


def test_the_registry_names_what_there_is_and_loads_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(BACKENDS) == {"shm", "gloo", "ipc", "nccl"}
    error = refusal({"backend": "smoke"})
    assert error.param == "init_info.backend" and "shm, gloo, ipc, nccl" in error.message
    plugin = EntryPoint("mine", "octavo.workers.weight_transfer.shm:SharedMemoryBackend", backend.GROUP)
    monkeypatch.setattr(backend, "entry_points", lambda group: [plugin] if group == backend.GROUP else [])
    assert type(connect({"backend": "mine"}, CPU)).__name__ == "SharedMemoryBackend"
    assert "nccl, mine" in refusal({"backend": "smoke"}).message


@pytest.mark.parametrize("name", ["ipc", "nccl"])
def test_what_needs_a_gpu_says_so_where_there_is_none(name: str) -> None:
    error = refusal({"backend": name, "master_address": "127.0.0.1", "master_port": 1, "world_size": 2})
    assert error.param == "init_info.backend"
    assert "this worker runs on cpu" in error.message and "shm" in error.message


def test_a_handle_comes_out_as_it_went_in() -> None:
    lent = ipc_handle(ARGUMENTS)
    assert all(isinstance(value, str | int) for value in lent.values()), "JSON"
    handle = read_handle(lent, "here")
    assert handle == IpcHandle(b"\x00m" * 32, 64, 512, 4, b"/torch_12_34_0", 7, b"e" * 64, True)
    assert choose_handles({"ipc_handles": [{"other": {}, UUID: lent}]}, [TENSOR], UUID) == [handle]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"memory": ""}, "memory"),
        ({"memory": "no base64!"}, "memory"),
        ({"memory": "QUJD" * 1000}, "memory"),
        ({"storage_bytes": -1}, "storage_bytes"),
        ({"storage_offset": True}, "storage_offset"),
        ({"tensor_offset": 1 << 60}, "tensor_offset"),
        ({"counter": "L2V0Yy9wYXNzd2Q="}, "counter"),  # /etc/passwd
        ({"event_sync": 1}, "event_sync"),
    ],
)
def test_a_wrong_handle_is_refused_by_name(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ControlError) as caught:
        choose_handles({"ipc_handles": [{UUID: ipc_handle(ARGUMENTS) | change}]}, [TENSOR], UUID)
    assert caught.value.param == f"update_info.ipc_handles.0.{UUID}.{field}"


def test_handles_must_fit_tensors_and_the_gpu() -> None:
    lent = ipc_handle(ARGUMENTS)
    for given, message in [
        (None, "entry for each of the 1 tensors"),
        ([], "got 0 entries"),
        ([{"other": lent}], "it has other"),
        ([7], "it has 7"),
        ([{UUID: lent | {"tensor_offset": 11}}], "does not fit its storage"),
    ]:
        with pytest.raises(ControlError, match=message):
            choose_handles({"ipc_handles": given}, [TENSOR], UUID)


def test_a_trainer_is_told_that_its_tensor_is_on_no_gpu() -> None:
    with pytest.raises(ValueError, match="'w' is on cpu"), cuda_weights({"w": torch.zeros(1)}):
        pass


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_broadcasts_come_in_order_and_a_trainer_that_stops_is_an_error() -> None:
    """Over gloo, by the code that NCCL's broadcasts take too."""
    port = free_port()
    tensors = [TensorDescription(name, torch.float32, (3,)) for name in "abc"]

    def train() -> None:
        group = gloo_group("127.0.0.1", port, 0, 2, 20, server=True)
        options = BroadcastOptions()
        options.rootRank = 0
        for value in (1.0, 2.0):
            group.broadcast([torch.full((3,), value)], options).wait()

    trainer = threading.Thread(target=train)
    trainer.start()
    place = {"master_address": "127.0.0.1", "master_port": port, "world_size": 2, "timeout_s": 20}
    worker = connect({"backend": "gloo", **place}, CPU)
    coming = worker.receive({}, tensors)
    assert [next(coming).tolist(), next(coming).tolist()] == [[1.0] * 3, [2.0] * 3]
    trainer.join()
    with pytest.raises(ControlError, match="'c' did not come from the trainer"):
        next(coming)
    worker.close()
