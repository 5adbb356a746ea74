from __future__ import annotations

import psutil
import pytest
import torch

from octavo.kernels.api import AttentionOps, QkNorm
from octavo.kernels.cpu.attention import CpuAttention
from octavo.kernels.ref.attention import RefAttention
from tests.kernels.paged import Case, dense_attention, fill, make_step

IMPLEMENTATIONS = {"ref": RefAttention(), "cpu": CpuAttention()}

CASES = {
    "one_decode": Case(((9, 1),)),
    "first_token": Case(((0, 1),)),
    "decodes_of_one_length": Case(((6, 1), (6, 1), (6, 1))),
    "decodes_of_like_lengths": Case(((5, 1), (7, 1), (6, 1))),
    "decodes_of_far_lengths": Case(((1, 1), (70, 1), (3, 1), (33, 1), (64, 1))),
    "block_borders": Case(((3, 1), (4, 1), (7, 1), (8, 1))),
    "fresh_prompt": Case(((0, 13),)),
    "chunk_behind_a_prefix": Case(((8, 5),)),
    "chunk_within_a_block": Case(((6, 3),)),
    "mixed": Case(((10, 1), (2, 1), (0, 7), (5, 9), (12, 4))),
    "single_token_chunk_behind_prompts": Case(((4, 1), (0, 6), (3, 1))),
    "every_head_its_own": Case(((5, 1), (0, 6)), heads=3, kv_heads=3),
    "one_kv_head": Case(((5, 1), (9, 1), (2, 6)), heads=6, kv_heads=1),
    "odd_sizes": Case(((17, 1), (2, 1), (3, 20)), heads=9, kv_heads=3, dim=24, block_tokens=16),
}


#: (window, softcap)
OPTIONS = {"plain": (0, 0.0), "window": (6, 0.0), "softcap": (0, 2.0), "both": (5, 1.5)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("ops", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)
@pytest.mark.parametrize(("window", "softcap"), OPTIONS.values(), ids=OPTIONS)
def test_paged_equals_dense(ops: AttentionOps, case: Case, dtype: torch.dtype, window: int, softcap: float) -> None:
    step, blocks = make_step(case)
    generator = torch.Generator().manual_seed(1)

    def random(count: int, heads: int) -> torch.Tensor:
        return torch.randn(count, heads, case.dim, generator=generator).to(dtype)

    k = [random(start + count, case.kv_heads) for start, count in case.rows]
    v = [random(start + count, case.kv_heads) for start, count in case.rows]
    q = random(sum(step.counts), case.heads)
    cache = ops.allocate(blocks, case.block_tokens, case.kv_heads, case.dim, str(dtype).removeprefix("torch."), "cpu")
    fill(ops, case, step, cache, k, v)
    if window:
        # What lies left of every window was given back: it may be the null block, or anything.
        for row, start in enumerate(step.starts):
            gone = max(0, start - window + 1) // case.block_tokens
            step.tables[row, :gone] = torch.randint(0, blocks, (gone,), generator=generator, dtype=torch.int32)
    prepared = ops.prepare(step, case.kv_heads)
    new_k = torch.cat([part[start:] for part, start in zip(k, step.starts, strict=True)])
    new_v = torch.cat([part[start:] for part, start in zip(v, step.starts, strict=True)])
    one, zero = torch.ones(len(q), case.dim, dtype=dtype), torch.zeros(len(q), case.dim, dtype=dtype)
    turned = prepared.rotate_and_write(q, new_k, new_v, one, zero, cache)
    assert torch.equal(turned, q)
    scale = 0.3
    got = prepared.attend(turned, cache, scale, window, softcap)
    assert got.shape == q.shape
    assert got.dtype == dtype
    tolerance = 2e-6 if dtype == torch.float32 else 2e-2
    at = 0
    for row, (start, count) in enumerate(case.rows):
        want = dense_attention(q[at : at + count], k[row], v[row], start, scale, window, softcap)
        torch.testing.assert_close(got[at : at + count].double(), want, atol=tolerance, rtol=tolerance)
        at += count


@pytest.mark.parametrize("ops", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)
@pytest.mark.parametrize("wide", [False, True])
def test_heads_are_normed_before_they_turn(ops: AttentionOps, wide: bool) -> None:
    """With weights of the model's dtype as Qwen3 norms, with float32 ones as Gemma 3 does."""
    from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

    case, dtype = Case(((0, 3), (0, 5))), torch.bfloat16
    step, blocks = make_step(case)
    generator = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(8, heads, case.dim, generator=generator).to(dtype) for heads in (4, 2, 2))
    weights = [torch.randn(case.dim, generator=generator) * 0.1 for _ in range(2)]
    theirs = [(Gemma3RMSNorm if wide else Qwen3RMSNorm)(case.dim, eps=1e-6) for _ in weights]
    for norm, weight in zip(theirs, weights, strict=True):
        norm.weight.data = weight if wide else (1 + weight).to(dtype)
    given = [1 + weight if wide else (1 + weight).to(dtype) for weight in weights]
    one, zero = torch.ones(8, case.dim, dtype=dtype), torch.zeros(8, case.dim, dtype=dtype)
    caches = [ops.allocate(blocks, case.block_tokens, 2, case.dim, "bfloat16", "cpu") for _ in range(2)]
    prepared = ops.prepare(step, case.kv_heads)
    got = prepared.rotate_and_write(q, k, v, one, zero, caches[0], QkNorm(*given, 1e-6))
    want = prepared.rotate_and_write(theirs[0](q).detach(), theirs[1](k).detach(), v, one, zero, caches[1])
    assert torch.equal(got, want)
    assert torch.equal(caches[0].k, caches[1].k)


@pytest.mark.parametrize("ops", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_new_cache_is_zero(ops: AttentionOps, dtype: str) -> None:
    cache = ops.allocate(5, 4, 2, 8, dtype, "cpu")
    for tensor in (cache.k, cache.v):
        assert str(tensor.dtype) == f"torch.{dtype}"
        assert tensor.numel() == 5 * 4 * 2 * 8
        assert not tensor.any()


def test_a_cache_on_the_cpu_takes_memory_as_it_is_used() -> None:
    before = psutil.Process().memory_info().rss
    cache = CpuAttention().allocate(1 << 17, 16, 2, 128, "bfloat16", "cpu")
    assert cache.k.nbytes == 1 << 30
    assert not cache.k[1 << 16].any()
    assert psutil.Process().memory_info().rss - before < 1 << 27


@pytest.mark.parametrize("ops", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)
def test_a_step_writes_its_own_places_and_no_other(ops: AttentionOps) -> None:
    case = Case(((5, 1), (2, 6)))
    step, blocks = make_step(case)
    cache = ops.allocate(blocks, case.block_tokens, case.kv_heads, case.dim, "float32", "cpu")
    k = torch.randn(7, case.kv_heads, case.dim)
    q = torch.randn(7, case.heads, case.dim)
    cos, sin = torch.randn(7, case.dim), torch.randn(7, case.dim)
    ops.prepare(step, case.kv_heads).rotate_and_write(q, k, k, cos, sin, cache)
    assert int((cache.v != 0).any(dim=-1).sum()) == 7 * case.kv_heads
    assert not cache.v[0].any()  # the null block
    token = 0
    for row, (start, count) in enumerate(case.rows):
        for position in range(start, start + count):
            block = int(step.tables[row, position // case.block_tokens])
            assert torch.equal(cache.v[block, :, position % case.block_tokens], k[token])
            token += 1


@pytest.mark.parametrize("ops", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_rotation_is_that_of_transformers(ops: AttentionOps, dtype: torch.dtype) -> None:
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    case = Case(((0, 5),), block_tokens=8)
    step, blocks = make_step(case)
    q = torch.randn(5, case.heads, case.dim).to(dtype)
    k = torch.randn(5, case.kv_heads, case.dim).to(dtype)
    cos, sin = torch.randn(5, case.dim).to(dtype), torch.randn(5, case.dim).to(dtype)
    cache = ops.allocate(blocks, 8, case.kv_heads, case.dim, str(dtype).removeprefix("torch."), "cpu")
    got = ops.prepare(step, case.kv_heads).rotate_and_write(q, k, k, cos, sin, cache)
    want_q, want_k = apply_rotary_pos_emb(q.transpose(0, 1)[None], k.transpose(0, 1)[None], cos[None], sin[None])
    assert torch.equal(got, want_q[0].transpose(0, 1))
    assert torch.equal(cache.k[int(step.tables[0, 0]), :, :5], want_k[0])
