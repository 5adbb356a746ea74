"""Slots' arrays and block copies against plain indexing."""

from __future__ import annotations

import pytest
import torch

from octavo.kernels.api import DecodeInputs, KvCache
from octavo.kernels.ref.state import RefState
from octavo.kernels.triton.block_copy import BlockCopier
from octavo.kernels.triton.state import TritonState


@pytest.mark.parametrize("count", [0, 1, 300])
def test_scatter_and_gather(count, device) -> None:
    target = torch.randint(0, 9999, (40, 50), dtype=torch.int32, device=device)
    places = torch.randperm(40 * 50)[:count].to(device)
    rows, columns = places // 50, places % 50
    values = torch.randint(0, 9999, (count,), dtype=torch.int32, device=device)
    want = target.clone()
    RefState().scatter(want, rows, columns, values)
    TritonState().scatter(target, rows, columns, values)
    assert torch.equal(target, want)
    assert torch.equal(TritonState().gather_ids(target, rows, columns), values)


def test_gather_of_padding_is_zero(device) -> None:
    tokens = torch.full((4, 8), 7, dtype=torch.int32, device=device)
    slots = torch.tensor([1, -1, 2], device=device)
    got = TritonState().gather_ids(tokens, slots, torch.tensor([3, 0, -1], device=device))
    assert got.tolist() == [7, 0, 0]


def test_a_decode_step_begins_and_ends_on_the_device(device) -> None:
    slots_count, length, blocks, block_tokens = 6, 64, 5, 16
    tokens = torch.randint(0, 9999, (slots_count, length), dtype=torch.int32, device=device)
    lengths = torch.tensor([5, 0, 33, 16, 17, 1], dtype=torch.int32, device=device)
    tables = torch.randint(0, 99, (slots_count, blocks), dtype=torch.int32, device=device)
    slots = torch.tensor([4, 2, -1, 0], device=device)
    ids = torch.full((4,), -5, dtype=torch.int32, device=device)
    wide = torch.full((4,), -5, dtype=torch.int64, device=device)
    table = torch.full((4, blocks), -5, dtype=torch.int32, device=device)
    out = DecodeInputs(ids, wide, wide.clone(), wide.clone(), ids.clone(), table)
    ops = TritonState()
    ops.gather_decodes(tokens, lengths, tables, slots, out, block_tokens)
    assert out.lengths.tolist() == [17, 33, 0, 5]
    assert out.positions.tolist() == [16, 32, -1, 4]
    assert out.places.tolist() == [16, 32, 0, 4]
    assert out.nexts.tolist() == [17, 33, 0, 5]
    assert out.ids.tolist() == [int(tokens[4, 16]), int(tokens[2, 32]), 0, int(tokens[0, 4])]
    for row, (slot, used) in enumerate([(4, 2), (2, 3), (None, 0), (0, 1)]):
        assert out.tables[row, used:].tolist() == [-5] * (blocks - used)
        if slot is not None:
            assert torch.equal(out.tables[row, :used], tables[slot, :used])
    before = tokens.clone()
    ops.append(tokens, lengths, slots, torch.tensor([11, 12, 13, 14], device=device))
    assert lengths.tolist() == [6, 0, 34, 16, 18, 1]
    changed = (tokens != before).nonzero().tolist()
    assert [tuple(place) for place in changed] == [(0, 5), (2, 33), (4, 17)]
    assert [int(tokens[place[0], place[1]]) for place in changed] == [14, 12, 11]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_block_copy(dtype, device) -> None:
    caches = [KvCache(*(torch.randn(9, 3, 16, 24).to(dtype).to(device) for _ in range(2))) for _ in range(3)]
    want = [KvCache(cache.k.clone(), cache.v.clone()) for cache in caches]
    pairs = [(1, 5), (1, 6), (8, 0)]
    for cache in want:
        for source, target in pairs:
            cache.k[target], cache.v[target] = cache.k[source], cache.v[source]
    BlockCopier(caches).copy(torch.tensor(pairs, dtype=torch.int32, device=device))
    for cache, wanted in zip(caches, want, strict=True):
        assert torch.equal(cache.k, wanted.k)
        assert torch.equal(cache.v, wanted.v)
