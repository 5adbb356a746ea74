"""Attention against an oracle in float64 and against `ref`: mixed batches, options, splits, padding."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from octavo.kernels.ref.attention import RefAttention
from octavo.kernels.triton import attention, decode, fresh, tiles
from octavo.kernels.triton.attention import TritonAttention
from octavo.kernels.triton.replay import TritonReplay
from octavo.kernels.triton.state import TritonState
from octavo.kernels.triton.step import DeviceStep
from tests.kernels.triton.paged import NAN, NOWHERE, close, expected, fill, make_case

DTYPES = [torch.float32, torch.bfloat16]
SHAPES = [(2, 4, 64, 16), (1, 3, 32, 16), (1, 1, 80, 32), (1, 7, 16, 8)]  # heads, group, dim, block tokens
MIXED = [(0, 1), (70, 1), (5, 1), (0, 33), (40, 9)]
LARGE_SHAPES = [(8, 4, 128, 16), (8, 2, 128, 64), (4, 7, 128, 16), (2, 8, 256, 16), (3, 3, 64, 16), (8, 1, 96, 32)]
LARGE = [(0, 1), (3000, 1), (5, 1), (1023, 1), (0, 700), (2048, 9), (100, 1500), (0, 17), (6000, 130)]


def check(rows, shape, dtype, device, **options) -> None:
    heads, group, dim, block_tokens = shape
    case = make_case(rows, heads, group, dim, block_tokens, dtype, device)
    fill(case)
    ops = TritonAttention()
    got = ops.prepare(case.step, heads).attend(case.q, case.cache, dim**-0.5, **options)
    close(got, expected(case, dim**-0.5, **options), dtype)
    recorded = ops.prepare_device(known_to_the_device(case, heads, ops), heads)
    close(recorded.attend(case.q, case.cache, dim**-0.5, **options), expected(case, dim**-0.5, **options), dtype)
    if not options:
        close(got, RefAttention().prepare(case.step, heads).attend(case.q, case.cache, dim**-0.5), dtype)
    for workspace in ops._workspaces.values():
        assert not workspace.counters.any()


def known_to_the_device(case, heads, ops) -> DeviceStep:
    """Return the step of `case` as a recording has it, with room for more decode rows than there are."""
    step, replay = case.step, TritonReplay(ops, TritonState())
    work = np.full(replay.work_size(case.tokens), 99, dtype=np.int32)
    behind = (np.asarray(numbers[step.num_decodes :], dtype=np.int64) for numbers in (step.starts, step.counts))
    assert replay.cut(*behind, step.num_decodes, heads, work)
    lengths = [start + 1 for start in step.starts[: step.num_decodes]] + [-1] * 3
    device = case.q.device
    return DeviceStep(
        num_decodes=len(lengths),
        queries=1,
        lengths=torch.tensor(lengths, dtype=torch.int32, device=device),
        tables=torch.cat((step.tables, torch.full_like(step.tables[:1], NOWHERE).repeat(3, 1))),
        rows=step.rows,
        positions=step.positions,
        block_tokens=step.block_tokens,
        work=torch.from_numpy(work).to(device),
    )


def host_step(starts, counts, num_decodes) -> DeviceStep:
    """Return a step of which only the sizes matter."""
    none = torch.zeros(0)
    return DeviceStep(num_decodes, 1, none, none, none, none, 16, starts=tuple(starts), counts=tuple(counts))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_mixed_batch(shape, dtype, device) -> None:
    check(MIXED, shape, dtype, device)


@pytest.mark.parametrize("rows", [[(300, 1)], [(0, 1), (129, 1)], [(64, 1), (63, 1), (127, 1), (128, 1)], [(0, 5)]])
def test_lengths_around_tiles(rows, device) -> None:
    check(rows, (1, 2, 16, 16), torch.float32, device)


@pytest.mark.parametrize("window", [1, 7, 16, 17, 64])
@pytest.mark.parametrize("rows", [[(15, 1), (16, 1), (17, 1), (100, 1)], [(0, 40)], [(70, 20), (3, 1)]])
def test_window(rows, window, device) -> None:
    check(rows, (1, 2, 16, 16), torch.float32, device, window=window)


def test_softcap_and_sinks(device) -> None:
    sinks = torch.randn(2, device=device)
    check(MIXED, (1, 2, 32, 16), torch.float32, device, softcap=2.0)
    check(MIXED, (1, 2, 32, 16), torch.float32, device, sinks=sinks)
    check(MIXED, (1, 2, 32, 16), torch.float32, device, sinks=sinks, window=20, softcap=5.0)


@pytest.mark.parametrize("options", [{}, {"window": 700}, {"sinks": 4}])
def test_long_prefix_is_split_over_parts(options, device) -> None:
    """A short row behind a long prefix is cut into ranges of keys, merged afterwards."""
    if "sinks" in options:
        options = {"sinks": torch.randn(options["sinks"], device=device)}
    check([(1200, 1), (1500, 6)], (1, 4, 16, 16), torch.float32, device, **options)
    assert tiles.cut_tiles(host_step([1500], [6], 1), [0], 16, 32, options.get("window", 0), 4).parts > 1


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", LARGE_SHAPES)
def test_mixed_batch_of_real_size(shape, dtype, device) -> None:
    check(LARGE, shape, dtype, device)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", LARGE_SHAPES)
def test_options_at_real_size(shape, device) -> None:
    sinks = torch.randn(shape[0] * shape[1], device=device)
    check(LARGE, shape, torch.bfloat16, device, window=128)
    check(LARGE, shape, torch.bfloat16, device, window=1000, softcap=30.0)
    check(LARGE, shape, torch.bfloat16, device, sinks=sinks)
    check([(0, 1), (9000, 1), (9001, 3)], shape, torch.bfloat16, device, sinks=sinks, softcap=30.0)


@pytest.mark.parametrize("queries", [1, 3])
def test_padded_rows_of_a_device_step(queries, device) -> None:
    """Rows of length 0 hold NaN and tables that lead nowhere; they yield zeros and touch nobody."""
    heads, group, dim, dtype = 2, 2, 16, torch.float32
    rows = [(40, queries), (200, queries)]
    case = make_case(rows, heads, group, dim, 16, dtype, device)
    fill(case)
    padding = 3
    nan = torch.full((padding * queries, heads * group, dim), NAN, device=device)
    nowhere = torch.full((padding, case.step.tables.shape[1]), NOWHERE, dtype=torch.int32, device=device)
    minus = torch.full((padding * queries,), -1, dtype=torch.int64, device=device)
    lengths = [start + count for start, count in rows] + [0] * padding
    step = DeviceStep(
        num_decodes=len(lengths),
        queries=queries,
        lengths=torch.tensor(lengths, dtype=torch.int32, device=device),
        tables=torch.cat((case.step.tables, nowhere)),
        rows=torch.cat((case.step.rows, minus)),
        positions=torch.cat((case.step.positions, minus)),
        block_tokens=16,
    )
    got = TritonAttention().prepare_device(step, heads).attend(torch.cat((case.q, nan)), case.cache, 0.25)
    close(got[: case.tokens], expected(case, 0.25), dtype)
    assert not got[case.tokens :].any()


def test_splits_depend_on_sizes_alone() -> None:
    shape = decode.decode_shape(128, False, 64, 0)
    found = {rows: shape.splits(rows, 8, 132, 0) for rows in (1, 4, 8, 16, 32, 64, 128, 256, 1024)}
    assert found[1] == 64
    assert found[1024] == 1
    assert all(splits * rows * 8 <= 4096 or splits == 1 for rows, splits in found.items())
    shape = decode.decode_shape(128, False, 256, 0)
    assert shape.splits(32, 8, 132, 0) == 3  # 768 programs on 396 places: two waves, nearly full
    assert shape.splits(32, 8, 132, 1024) == 1
    assert shape.splits(1, 8, 132, 300) == 2


def test_recorded_work_has_room_or_says_so(device) -> None:
    replay = TritonReplay(TritonAttention(), TritonState())
    work = np.zeros(replay.work_size(64), dtype=np.int32)
    room = (len(work) - 16 * tiles.MERGE_FIELDS) // tiles.TILE_FIELDS
    ones = np.ones(room + 1, dtype=np.int64)
    assert replay.cut(5 * ones[:room], ones[:room], 0, 8, work)
    assert not replay.cut(5 * ones, ones, 0, 8, work)
    assert replay.cut(ones[:0], ones[:0], 0, 8, work)
    assert not work.any()


@pytest.mark.parametrize("programs", [1, 4, 1000])
def test_tiles_cover_every_query_and_key_once(programs) -> None:
    starts, counts, block_n = [0, 700, 3, 4000], [5, 40, 1, 129], 32
    cut = tiles.cut_tiles(host_step(starts, counts, 7), [0] * 4, 16, block_n, 0, programs)
    seen: dict[int, list[tuple[int, int]]] = {}
    for token, tokens, position, row, low, high, part, holds_sink in cut.tiles.tolist():
        assert position == starts[row - 7] + token - 7 - sum(counts[: row - 7])
        assert 0 < tokens <= 16
        assert (low == 0) == bool(holds_sink)
        assert (part >= 0) == bool(cut.parts)
        for one in range(token, token + tokens):
            seen.setdefault(one, []).append((low, high))
    assert sorted(seen) == list(range(7, 7 + sum(counts)))
    position = [p for s, c in zip(starts, counts, strict=True) for p in range(s, s + c)]
    for token, ranges in seen.items():
        ranges.sort()
        assert ranges[0][0] == 0
        assert ranges[-1][1] > position[token - 7]
        assert all(a[1] == b[0] and b[0] % block_n == 0 for a, b in itertools.pairwise(ranges))
    assert cut.merges[:, 3].sum() == cut.parts


def rotated(case):
    """Return q and k as the kernel rotates them: with cos 1 and sin 0, as they are."""
    return torch.ones_like(case.cos), torch.zeros_like(case.sin)


@pytest.mark.parametrize("rows", [[(0, 40)], [(0, 43)] * 3, [(5, 1), (0, 40), (0, 40), (30, 7), (0, 50)]])
@pytest.mark.parametrize("window", [0, 10])
def test_fresh_rows_by_dense_attention(rows, window, device, monkeypatch) -> None:
    """Rows without a prefix may take another way to the same result; the cache is written all the same."""
    monkeypatch.setattr(fresh, "MIN_TOKENS", 40)
    monkeypatch.setattr(fresh, "STEP", 20)
    monkeypatch.setattr(attention, "has_fresh", lambda device: True)
    case = make_case(rows, 2, 2, 32, 16, torch.bfloat16, device)
    want = expected(case, 0.2, window=window)
    prepared = TritonAttention().prepare(case.step, 2)
    assert prepared._runs
    for _ in range(2):  # two layers
        q = prepared.rotate_and_write(case.q, case.k, case.v, *rotated(case), case.cache)
        close(prepared.attend(q, case.cache, 0.2, window=window), want, torch.bfloat16)
    assert prepared._fresh is None
    close(prepared.attend(q, case.cache, 0.2, window=window), want, torch.bfloat16)  # out of the cache


@pytest.mark.parametrize(
    "rows", [[(80, 40)], [(5, 1), (160, 47), (0, 40), (81, 41)], [(7, 1), (30, 7), (80, 59), (80, 39)]]
)
def test_chunks_behind_a_prefix_by_dense_attention(rows, device, monkeypatch) -> None:
    """Prefixes of whole blocks and whole steps only; what is beyond whole steps of a chunk goes through the cache."""
    monkeypatch.setattr(fresh, "MIN_TOKENS", 40)
    monkeypatch.setattr(fresh, "MIN_BEHIND", 40)
    monkeypatch.setattr(fresh, "STEP", 20)
    monkeypatch.setattr(attention, "has_fresh", lambda device: True)
    case = make_case(rows, 2, 2, 32, 16, torch.bfloat16, device)
    want = expected(case, 0.2)
    prepared = TritonAttention().prepare(case.step, 2)
    assert [run.prefix for run in prepared._runs if run.prefix] == [
        start for start, count in rows if start % 20 == start % 16 == 0 and count >= 40 and start
    ]
    for _ in range(2):  # two layers
        q = prepared.rotate_and_write(case.q, case.k, case.v, *rotated(case), case.cache)
        close(prepared.attend(q, case.cache, 0.2), want, torch.bfloat16)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [[(0, 2048)] * 2, [(100, 1), (0, 1024), (0, 1500), (64, 300)], [(512, 2100), (9, 9)]])
def test_fresh_rows_of_real_size(rows, device) -> None:
    case = make_case(rows, 8, 4, 128, 16, torch.bfloat16, device)
    want = expected(case, 0.1)
    prepared = TritonAttention().prepare(case.step, 8)
    q = prepared.rotate_and_write(case.q, case.k, case.v, *rotated(case), case.cache)
    close(prepared.attend(q, case.cache, 0.1), want, torch.bfloat16)


@pytest.mark.gpu
def test_offsets_beyond_int32(device) -> None:
    """A cache of more than 2**31 elements: block offsets must be 64 bits wide."""
    heads, dim, block_tokens = 8, 128, 16
    blocks = 2**31 // (heads * dim * block_tokens) + 64
    cache = TritonAttention().allocate(blocks, block_tokens, heads, dim, "bfloat16", "cuda")
    case = make_case([(30, 1), (20, 40)], heads, 4, dim, block_tokens, torch.bfloat16, device)
    fill(case)
    far = case.step.tables != NOWHERE
    moved = torch.where(far, case.step.tables + blocks - 32, case.step.tables)
    used = case.step.tables[far].long()
    cache.k[used + blocks - 32] = case.cache.k[used]
    cache.v[used + blocks - 32] = case.cache.v[used]
    step = type(case.step)(**{name: getattr(case.step, name) for name in case.step.__slots__} | {"tables": moved})
    prepared = TritonAttention().prepare(step, heads)
    close(prepared.attend(case.q, cache, 0.1), expected(case, 0.1), torch.bfloat16)
    cos, sin = torch.ones_like(case.cos), torch.zeros_like(case.sin)
    cache.k.zero_()
    prepared.rotate_and_write(case.q, case.k, case.v, cos, sin, cache)
    block = moved[case.step.rows, case.step.positions // block_tokens].long()
    assert torch.equal(cache.k[block, :, case.step.positions % block_tokens], case.k)
    assert int(cache.k.count_nonzero(dim=(1, 2, 3)).count_nonzero()) == len(block.unique())


@pytest.mark.gpu
def test_graph_replay_at_other_lengths(device) -> None:
    """A captured decode step serves lengths, tables and padding that it has not seen."""
    heads, group, dim, rows, dtype = 8, 4, 128, 8, torch.bfloat16
    case = make_case([(2000, 1)] * rows, heads, group, dim, 16, dtype, device)
    lengths = torch.full((rows,), 2001, dtype=torch.int32, device=device)
    step = DeviceStep(rows, 1, lengths, case.step.tables, case.step.rows, case.step.positions, 16)
    ops = TritonAttention()
    prepared = ops.prepare_device(step, heads)
    fill(case)
    q = case.q.clone()
    prepared.attend(q, case.cache, 0.1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = prepared.attend(q, case.cache, 0.1)
    for sizes in ([1, 17, 2000, 999, 64, 65, 1500, 128], [5, 700]):
        other = make_case([(size - 1, 1) for size in sizes], heads, group, dim, 16, dtype, device)
        fill(other)
        used = other.step.tables.shape[1]
        live = len(sizes)
        lengths.zero_()
        lengths[:live] = torch.tensor(sizes, dtype=torch.int32)
        step.tables[:live, :used] = other.step.tables
        q.fill_(NAN)
        q[:live] = other.q
        small = other.cache.k.shape[0]
        case.cache.k.fill_(NAN)
        case.cache.k[:small], case.cache.v[:small] = other.cache.k, other.cache.v
        graph.replay()
        close(out[:live], expected(other, 0.1), dtype)
        assert not out[live:].any()
