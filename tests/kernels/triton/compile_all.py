"""Compile every kernel for compute capability 9.0 without a GPU: `python -m tests.kernels.triton.compile_all`.

The interpreter lets pass what the compiler refuses. Wrappers run on CPU tensors; each launch becomes a compilation.
Must be started with TRITON_INTERPRET=0. Prints the kernels that were compiled.
"""

from __future__ import annotations

import importlib
import os
import pkgutil

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

import octavo.kernels.triton
from octavo.kernels.api import DecodeInputs, History, KvCache, PagedStep, QkNorm, SampleInputs
from octavo.kernels.logit_rows import BannedWords, Edits, Markers, Said, Thinking
from octavo.kernels.triton.activation import TritonActivation
from octavo.kernels.triton.ahead import compiling
from octavo.kernels.triton.attention import TritonAttention
from octavo.kernels.triton.behind import attend_behind
from octavo.kernels.triton.block_copy import BlockCopier
from octavo.kernels.triton.embedding import TritonEmbedding
from octavo.kernels.triton.fresh import FreshRun
from octavo.kernels.triton.linear import TritonLinear
from octavo.kernels.triton.logits import TritonLogits
from octavo.kernels.triton.mask import TritonMask
from octavo.kernels.triton.norm import TritonNorm
from octavo.kernels.triton.sample import TritonSample
from octavo.kernels.triton.state import TritonState

BF16, INT = torch.bfloat16, torch.int32


class Hopper:
    """Stands in for a driver with a device."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device=None) -> int:
        return 0


def only_compile() -> set[str]:
    """Make launches compile with dependent launch on; return the set to which kernels' names are added."""
    names: set[str] = set()
    launch = JITFunction.run

    def compile_only(self, *args, grid, warmup, **options):
        names.add(self.fn.__name__)
        return launch(self, *args, grid=grid, warmup=True, **options)

    JITFunction.run = compile_only
    driver.set_active(Hopper())
    for module in pkgutil.iter_modules(octavo.kernels.triton.__path__):
        loaded = importlib.import_module(f"octavo.kernels.triton.{module.name}")
        if hasattr(loaded, "launch_options"):
            loaded.launch_options = lambda like: {"DEPENDENT": True, "launch_pdl": True}
    return names


def attention() -> None:
    heads, dim, rows, new = 2, 64, 2, 70
    step = PagedStep(
        starts=[3000] * rows + [900],
        counts=[1] * rows + [new],
        num_decodes=rows,
        block_tokens=16,
        tables=torch.zeros(rows + 1, 200, dtype=INT),
        rows=torch.zeros(rows + new, dtype=torch.int64),
        positions=torch.zeros(rows + new, dtype=torch.int64),
    )
    cache = KvCache(*(torch.zeros(4, heads, 16, dim, dtype=BF16) for _ in range(2)))
    q, k, v = torch.zeros(rows + new, 4 * heads, dim, dtype=BF16).split([4, 2, 2], dim=1)
    rope = torch.zeros(rows + new, dim, dtype=BF16)
    prepared = TritonAttention().prepare(step, heads)
    prepared.rotate_and_write(q, k, v, rope, rope, cache, norm=QkNorm(rope[0], rope[0], 1e-6))
    prepared.attend(q, cache, 0.1, window=128)
    prepared.attend(q, cache, 0.1, softcap=30.0, sinks=torch.zeros(4))
    attend_behind(q, k, v, cache, step.tables[0], FreshRun(0, 2, 1, new, 64, 64), 0.1, torch.zeros_like(q))


def others() -> None:
    x, weight = torch.zeros(2, 1024, dtype=BF16), torch.zeros(1024, dtype=BF16)
    TritonNorm().rms_norm(x, weight, 1e-6)
    TritonNorm().add_rms_norm(x, x.clone(), weight, 1e-6)
    TritonActivation().silu_mul(x)
    TritonActivation().gelu_mul(x)
    TritonNorm().rms_norm(x, weight.float(), 1e-6)
    for rows in (2, 3, 64):
        TritonLinear().apply(x[:1].repeat(rows, 1), torch.zeros(64, 1024, dtype=BF16), weight[:64])
    ids, many = torch.zeros(2, dtype=INT), torch.zeros(2, dtype=torch.int64)
    TritonEmbedding().lookup(ids, x, 0)
    TritonSample().sample(x, SampleInputs(many.float(), many, many.float(), many, many, False, True, True))
    table = torch.zeros(2, 64, dtype=INT)
    scores = torch.zeros(2, 2048)
    TritonLogits().penalize(scores, History(table, many, many), scores[:, :3])
    TritonLogits().keep_min_p(scores, scores[:, 0], scores[:, 1])
    said = Said(0, 0, 1, 2)
    TritonLogits().ban_words(scores, table, [BannedWords(said, many[None])])
    TritonLogits().edit(scores, [Edits(0, many, many, scores[0, :2], many)])
    TritonLogits().end_thinking(scores, table, [Thinking(said, Markers(many, many, many), 3)])
    TritonLogits().logprobs(scores, many, 1, None, True)
    TritonMask().apply_token_mask(x, many, table)
    TritonState().scatter(table, many, many, ids)
    TritonState().gather_ids(table, many, many)
    TritonState().gather_decodes(table, ids, table, many, DecodeInputs(ids, many, many, many, ids, table), 16)
    TritonState().append(table, ids, many, many)
    BlockCopier([KvCache(torch.zeros(4, 2, 16, 64), torch.zeros(4, 2, 16, 64))]).copy(table[:, :2])


if __name__ == "__main__":
    compiled = only_compile()
    with compiling(os.cpu_count() or 1) as count:
        attention()
        others()
    assert count.compiled >= len(compiled), count
    print(*sorted(compiled), sep="\n")
