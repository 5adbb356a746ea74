"""Weights lent between two processes on one GPU."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from octavo.workers.weight_transfer.backend import Place, connect
from octavo.workers.weight_transfer.description import described

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.timeout(120),
]

TRAINER = """
import json, sys, torch
from octavo.client.cuda_weights import cuda_weights
base = torch.arange(4096, device="cuda", dtype=torch.float32)
weights = {"a": base[100:106].view(2, 3), "b": torch.full((5,), 0.5, device="cuda", dtype=torch.bfloat16), "c": base}
for turn in range(2):
    with cuda_weights(weights) as info:
        print(json.dumps(info), flush=True)
        sys.stdin.readline()
    base.neg_()
"""


def test_a_worker_reads_what_a_trainer_lends() -> None:
    worker = connect({"backend": "ipc"}, Place(0, 1, "cuda:0"))
    with subprocess.Popen(
        [sys.executable, "-c", TRAINER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as trainer:
        assert trainer.stdin is not None and trainer.stdout is not None
        for sign in (1, -1):
            info = json.loads(trainer.stdout.readline())
            copies = [tensor.cpu() for tensor in worker.receive(info, described(info))]
            base = sign * torch.arange(4096, dtype=torch.float32)
            assert torch.equal(copies[0], base[100:106].view(2, 3))
            assert torch.equal(copies[1], torch.full((5,), 0.5, dtype=torch.bfloat16))
            assert torch.equal(copies[2], base)
            trainer.stdin.write("\n")
            trainer.stdin.flush()
        assert trainer.wait(30) == 0
    worker.close()


def test_a_handle_of_nothing_is_an_error_of_the_update() -> None:
    from octavo.errors import ControlError

    place = Place(0, 1, "cuda:0")
    uuid = str(torch.cuda.get_device_properties(0).uuid)
    lent = {
        "memory": "QUFB" * 22,
        "storage_bytes": 64,
        "storage_offset": 0,
        "tensor_offset": 0,
        "counter": "L3RvcmNoXzFfMV8x",  # /torch_1_1_1
        "counter_offset": 0,
        "event": "QUFB" * 22,
        "event_sync": False,
    }
    info = {"names": ["a"], "dtype_names": ["float32"], "shapes": [[2]], "ipc_handles": [{uuid: lent}]}
    with pytest.raises(ControlError, match="'a' cannot be read from the trainer"):
        list(connect({"backend": "ipc"}, place).receive(info, described(info)))
