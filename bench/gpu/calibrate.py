"""What the device of this call can do, as one line of JSON: `python -m bench.gpu.calibrate`."""

from __future__ import annotations

import json

import torch
import triton

from bench.measure import calibrate

ceilings = calibrate()
print(
    json.dumps(
        {
            "copy": ceilings.copy,
            "matmul": ceilings.matmul,
            "versions": {
                "torch": torch.__version__,
                "triton": triton.__version__,
                "cuda": torch.version.cuda,
                "device": torch.cuda.get_device_name(),
            },
        }
    )
)
