"""Loading takes little memory besides the weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny import make_llama

ROOT = Path(__file__).resolve().parents[4]

#: Loads a model and prints the bytes of its weights, and how far anonymous memory rose while it loaded.
_PROGRAM = """
import sys, threading, torch
from octavo.kernels.select import select
from octavo.layers.base import Build
from octavo.layers.batch import Progress
from octavo.layers.parallel import SingleGroup
from octavo.modelfiles import resolve
from octavo.models.base import build_model
from octavo.workers.loading.load import load_weights

torch.set_grad_enabled(False)
dtype = getattr(torch, sys.argv[2])
warm = torch.nn.functional.linear(torch.ones(64, 64, dtype=dtype), torch.ones(64, 64, dtype=dtype))

def anonymous():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024

done, peak = threading.Event(), [0]
def watch():
    while not done.wait(0.002):
        peak[0] = max(peak[0], anonymous())

files = resolve(sys.argv[1])
before = anonymous()
watcher = threading.Thread(target=watch)
watcher.start()
build = Build(select("cpu", sys.argv[2]), SingleGroup(), dtype, "cpu", 64)
model = build_model(files.architecture, files.config, build)
load_weights(model, files, 0, Progress())
done.set()
watcher.join()
print(model.weight_bytes(), max(peak[0], anonymous()) - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_peak_is_below_12_tenths_of_the_weights(tmp_path: Path, dtype: str) -> None:
    sizes = {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "vocab_size": 8192}
    model = make_llama(tmp_path, **sizes, num_hidden_layers=3, tie_word_embeddings=False, dtype="bfloat16")
    command = [sys.executable, "-c", _PROGRAM, str(model), dtype]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    weights, rise = map(int, done.stdout.split())
    assert weights > 100e6
    assert rise < 1.2 * weights + 10e6, f"{rise / 1e6:.0f} MB for {weights / 1e6:.0f} MB of weights"
