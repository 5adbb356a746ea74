"""Each kernel's time beside its floor, at Qwen3-8B's shapes: `python -m bench.kernels --out FILE [PART ...]`.

The floor is the larger of bytes over the copy rate and operations over the matmul rate, both measured in the same run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench.decode_step import decode_steps
from bench.measure import Report, Timing, calibrate, time_graph
from bench.shapes import DECODES, QWEN3_8B, longest_class
from octavo.kernels.api import KvCache, QkNorm, SampleInputs
from octavo.kernels.triton import gemv
from octavo.kernels.triton.activation import TritonActivation
from octavo.kernels.triton.attention import TritonAttention
from octavo.kernels.triton.decode import DecodeShape, Workspace, attend_decodes, decode_shape
from octavo.kernels.triton.norm import TritonNorm
from octavo.kernels.triton.prefill import PrefillShape, attend_prefills, prefill_shape
from octavo.kernels.triton.sample import TritonSample
from octavo.kernels.triton.step import DeviceStep

S = QWEN3_8B
BF16 = torch.bfloat16
BLOCK_TOKENS = 16
SCALE = S.head_dim**-0.5


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=BF16, device="cuda")


def sets_for(size: float) -> int:
    """Return on how many sets of data a graph works: more than the L2 holds, several times over."""
    return int(max(2, min(36, 4e8 // max(size, 1))))


def make_step(rows: list[tuple[int, int]], num_decodes: int) -> tuple[DeviceStep, int]:
    """Return a step of rows with (cached, new) tokens on shuffled blocks, and the number of blocks."""
    blocks = [-(-(start + count) // BLOCK_TOKENS) for start, count in rows]
    order = torch.randperm(sum(blocks), device="cuda", dtype=torch.int32)
    tables = torch.zeros(len(rows), max(blocks), dtype=torch.int32, device="cuda")
    at = 0
    for row, used in enumerate(blocks):
        tables[row, :used] = order[at : at + used]
        at += used
    counts = torch.tensor([count for _, count in rows])
    step = DeviceStep(
        num_decodes=num_decodes,
        queries=1,
        lengths=torch.tensor([start + count for start, count in rows[:num_decodes]], dtype=torch.int32).cuda(),
        tables=tables,
        rows=torch.repeat_interleave(torch.arange(len(rows)), counts).cuda(),
        positions=torch.cat([torch.arange(start, start + count) for start, count in rows]).cuda(),
        block_tokens=BLOCK_TOKENS,
        longest=longest_class(max((start + count for start, count in rows[:num_decodes]), default=0)),
        starts=tuple(start for start, _ in rows[num_decodes:]),
        counts=tuple(count for _, count in rows[num_decodes:]),
    )
    return step, sum(blocks)


def make_caches(blocks: int, count: int) -> list[KvCache]:
    shape = (blocks, S.kv_heads, BLOCK_TOKENS, S.head_dim)
    return [KvCache(randn(*shape), randn(*shape)) for _ in range(count)]


def decode_case(rows: int, length: int) -> tuple[Callable[[DecodeShape], Timing], float]:
    """Return a function that times decode attention under a shape, and the bytes it must move."""
    step, blocks = make_step([(length - 1, 1)] * rows, rows)
    size = rows * S.kv_bytes(length) + rows * S.heads * S.head_dim * 4
    caches = make_caches(blocks, sets_for(size))
    q = randn(rows, S.heads, S.head_dim)
    workspace, out = Workspace(q.device), torch.empty_like(q)

    def timed(shape: DecodeShape) -> Timing:
        def piece(cache: KvCache) -> Callable[[], None]:
            return lambda: attend_decodes(q, cache, out, step, workspace, SCALE, 0, 0.0, None, shape)

        return time_graph([piece(cache) for cache in caches])

    return timed, float(size)


def decode_attention(report: Report) -> None:
    for name, rows, length in DECODES:
        timed, size = decode_case(rows, length)
        report.add(
            f"decode_attention_{name}",
            "triton",
            timed(decode_shape(S.head_dim, False, rows * S.kv_heads, longest_class(length))),
            size,
        )
        torch.cuda.empty_cache()


def tune_decode(report: Report) -> None:
    """Try the cuts of a decode launch on a few batches."""
    shapes = [DecodeShape(128, 2, 4, 3, resident) for resident in (1, 2, 3, 6)]
    shapes += [DecodeShape(64, 4, 2, 5, 4), DecodeShape(64, 4, 4, 4, 4), DecodeShape(32, 4, 2, 5, 8)]
    for name, rows, length in [DECODES[0], DECODES[1], DECODES[5], DECODES[6]]:
        timed, size = decode_case(rows, length)
        found = []
        for shape in shapes:
            try:
                found.append((timed(shape).median, shape))
            except Exception as error:
                print(f"{shape}: {str(error)[:80]}", flush=True)
        for median, shape in sorted(found, key=lambda pair: pair[0])[:6]:
            ratio = median / report.ceilings.floor(size)
            print(f"  {name:8} {median * 1e6:9.2f} us x{ratio:5.2f} {shape}", flush=True)
        torch.cuda.empty_cache()


PREFILLS = {
    "16x512": [(0, 512)] * 16,
    "8x1024": [(0, 1024)] * 8,
    "1x2048": [(0, 2048)],
    "8x2048": [(0, 2048)] * 8,
    "1x16k": [(0, 16384)],
    "4096_after_12k": [(12288, 4096)],
    "16_after_16k": [(16384, 16)],
}


def pair_flops(rows: list[tuple[int, int]]) -> float:
    """Return the operations of causal attention: 4 * D per query, head and key it sees."""
    pairs = sum(count * start + count * (count + 1) / 2 for start, count in rows)
    return 4.0 * S.head_dim * S.heads * pairs


def prefill_case(rows: list[tuple[int, int]]) -> tuple[Callable[[PrefillShape], Timing], float, float]:
    step, blocks = make_step(rows, 0)
    tokens = sum(count for _, count in rows)
    size = sum(S.kv_bytes(start + count) for start, count in rows) + tokens * S.heads * S.head_dim * 4
    caches = make_caches(blocks, 2)
    q = randn(tokens, S.heads, S.head_dim)
    prepared, out = TritonAttention().prepare_device(step, S.kv_heads), torch.empty_like(q)

    def timed(shape: PrefillShape) -> Timing:
        work = prepared.work(shape.block_m // (S.heads // S.kv_heads), shape.block_n, 0, True)

        def piece(cache: KvCache) -> Callable[[], None]:
            return lambda: attend_prefills(q, cache, out, step, work, shape, SCALE, 0, 0.0, None)

        return time_graph([piece(cache) for cache in caches], replays=7)

    return timed, float(size), pair_flops(rows)


def prefill_attention(report: Report) -> None:
    for name, rows in PREFILLS.items():
        timed, size, flops = prefill_case(rows)
        report.add(
            f"prefill_attention_{name}",
            "triton",
            timed(prefill_shape(S.head_dim, 4, False, max(count for _, count in rows))),
            size,
            flops,
        )
        if all(start == 0 and count == rows[0][1] for start, count in rows):
            whole_attention(report, name, rows, size, flops)
            sdpa(report, name, len(rows), rows[0][1], size, flops)
        torch.cuda.empty_cache()


def whole_attention(report: Report, name: str, rows: list[tuple[int, int]], size: float, flops: float) -> None:
    """The way that TritonPrepared takes by itself: rotation, write and attention."""
    step, blocks = make_step(rows, 0)
    tokens = step.positions.shape[0]
    cache, prepared = make_caches(blocks, 1)[0], TritonAttention().prepare_device(step, S.kv_heads)
    q, k, v = randn(tokens, S.heads + 2 * S.kv_heads, S.head_dim).split([S.heads, S.kv_heads, S.kv_heads], dim=1)
    cos, sin = randn(tokens, S.head_dim), randn(tokens, S.head_dim)

    def layer() -> torch.Tensor:
        turned = prepared.rotate_and_write(q, k, v, cos, sin, cache)
        return prepared.attend(turned, cache, SCALE)

    report.add(f"prefill_rotate_attend_{name}", "octavo", time_graph([layer] * 2, replays=7), size, flops)


def sdpa(report: Report, name: str, rows: int, length: int, size: float, flops: float) -> None:
    """The same attention by torch's kernels on dense tensors: the yardstick."""
    q = randn(rows, length, S.heads, S.head_dim).transpose(1, 2)
    k, v = (randn(rows, length, S.kv_heads, S.head_dim).transpose(1, 2) for _ in range(2))
    for engine, backend in (("cudnn", SDPBackend.CUDNN_ATTENTION), ("flash2", SDPBackend.FLASH_ATTENTION)):
        try:
            with sdpa_kernel([backend]):
                timing = time_graph(
                    [lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=SCALE, enable_gqa=True)] * 2,
                    replays=7,
                )
            report.add(f"prefill_attention_{name}", engine, timing, size, flops)
        except RuntimeError as error:
            print(f"{engine}: {str(error)[:100]}", flush=True)


def tune_prefill(report: Report) -> None:
    """Try the cuts of a prefill launch."""
    cuts = [(128, 64, 4, 3), (256, 64, 8, 4), (256, 64, 8, 5), (256, 64, 8, 7), (256, 32, 8, 7), (256, 128, 8, 5)]
    for name in ("1x2048", "8x2048", "4096_after_12k"):
        timed, _, flops = prefill_case(PREFILLS[name])
        for cut in cuts:
            try:
                median = timed(PrefillShape(*cut)).median
            except Exception as error:
                print(f"{cut}: {str(error)[:80]}", flush=True)
                continue
            print(f"  {name:8} {median * 1e6:9.1f} us {flops / median / 1e12:5.0f} TFLOP/s {cut}", flush=True)


def plans(report: Report) -> None:
    """What a prompt length that cuDNN has not seen costs on the host, and one that it has."""
    for length in (1000, 1001, 3000, 3001, 9000):
        q, k, v = (randn(1, length, heads, S.head_dim).transpose(1, 2) for heads in (S.heads, S.kv_heads, S.kv_heads))
        times = []
        for _ in range(3):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
                F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            times.append((time.perf_counter() - begin) * 1e3)
        print(f"  cudnn, length {length}: host ms of calls {[round(one, 3) for one in times]}", flush=True)


def elementwise(report: Report) -> None:
    for tokens in (1, 32, 256, 2048, 16384):
        norms(report, tokens)
        rotary(report, tokens)


def norms(report: Report, tokens: int) -> None:
    norm, activation, weight = TritonNorm(), TritonActivation(), randn(S.hidden)
    size = tokens * S.hidden * 2
    pairs = [(randn(tokens, S.hidden), randn(tokens, S.hidden)) for _ in range(sets_for(2 * size))]
    timing = time_graph([partial(norm.add_rms_norm, *pair, weight, 1e-6) for pair in pairs])
    report.add(f"add_rms_norm_{tokens}", "triton", timing, 4 * size)
    wide = [randn(tokens, 2 * S.intermediate) for _ in range(sets_for(tokens * S.intermediate * 4))]
    timing = time_graph([partial(activation.silu_mul, x) for x in wide])
    report.add(f"silu_mul_{tokens}", "triton", timing, tokens * S.intermediate * 6)


def rotary(report: Report, tokens: int) -> None:
    decodes = tokens if tokens <= 256 else 0
    step, blocks = make_step([(100, 1)] * tokens if decodes else [(0, tokens)], decodes)
    cache, prepared = make_caches(blocks, 1)[0], TritonAttention().prepare_device(step, S.kv_heads)
    cos, sin = randn(tokens, S.head_dim), randn(tokens, S.head_dim)
    norm = QkNorm(randn(S.head_dim), randn(S.head_dim), 1e-6)
    qkvs = [
        randn(tokens, S.heads + 2 * S.kv_heads, S.head_dim).split([S.heads, S.kv_heads, S.kv_heads], dim=1)
        for _ in range(sets_for(tokens * S.qkv * 2))
    ]
    timing = time_graph([partial(prepared.rotate_and_write, *qkv, cos, sin, cache, norm=norm) for qkv in qkvs])
    report.add(f"qk_norm_rope_write_{tokens}", "triton", timing, tokens * (S.qkv + S.head_dim) * 4)


def sampling(report: Report) -> None:
    ops = TritonSample()
    for rows in (1, 32, 256):
        logits = [torch.randn(rows, S.vocab, device="cuda") * 4 for _ in range(sets_for(rows * S.vocab * 4))]
        size = rows * S.vocab * 4
        for name, heat, k, p in [
            ("greedy", 0.0, 0, 1.0),
            ("gumbel", 0.8, 0, 1.0),
            ("top_k", 0.8, 50, 1.0),
            ("top_p", 0.8, 0, 0.9),
            ("top_kp", 0.8, 50, 0.9),
        ]:
            what = SampleInputs(
                temperature=torch.full((rows,), heat, device="cuda"),
                top_k=torch.full((rows,), k, dtype=torch.int64, device="cuda"),
                top_p=torch.full((rows,), p, device="cuda"),
                seed=torch.arange(rows, device="cuda"),
                position=torch.arange(rows, device="cuda"),
                all_greedy=heat == 0.0,
                any_top_k=k > 0,
                any_top_p=p < 1,
            )
            report.add(
                f"sample_{name}_{rows}", "triton", time_graph([partial(ops.sample, x, what) for x in logits]), size
            )
        timing = time_graph([partial(torch.argmax, x, dim=-1) for x in logits])
        report.add(f"sample_greedy_{rows}", "torch_argmax", timing, size)
        report.add(f"sort_{rows}", "torch_sort", time_graph([partial(torch.sort, x) for x in logits[:2]]), size)


class Products:
    """The step's products alone, each reading the last one's output: every layer, then lm_head."""

    def __init__(self) -> None:
        self.layers = [{name: randn(*size).mul_(0.02) for name, size in S.products.items()} for _ in range(S.layers)]
        self.head = randn(S.vocab, S.hidden).mul_(0.02)

    def run(self, x: torch.Tensor, apply: Callable[..., torch.Tensor]) -> None:
        for layer in self.layers:
            y = apply(x, layer["qkv"], None)
            y = apply(y[:, : S.heads * S.head_dim], layer["o"], None)
            y = apply(y, layer["gate_up"], None)
            x = apply(y[:, : S.intermediate], layer["down"], None)
        apply(x, self.head, None)


def linear(report: Report) -> None:
    products, dependent = Products(), gemv.launch_options
    for rows in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        x = randn(rows, S.hidden)
        flops, size = 2.0 * rows * S.matmul_weights, 2.0 * S.matmul_weights
        report.add(f"products_{rows}", "cublas", time_graph([partial(products.run, x, F.linear)], 5), size, flops)
        if rows > gemv.MAX_FEW:
            continue
        own = partial(products.run, x, gemv.few_rows)
        report.add(f"products_{rows}", "triton", time_graph([own], 5), size, flops)
        gemv.launch_options = lambda like: {"DEPENDENT": False}
        report.add(f"products_{rows}", "triton_plain_launch", time_graph([own], 5), size, flops)
        gemv.launch_options = dependent


PARTS: dict[str, Callable[[Report], None]] = {
    "tune_decode": tune_decode,
    "tune_prefill": tune_prefill,
    "plans": plans,
    "decode": decode_attention,
    "prefill": prefill_attention,
    "elementwise": elementwise,
    "sampling": sampling,
    "linear": linear,
    "steps": decode_steps,
}
DEFAULT = ("decode", "prefill", "elementwise", "sampling", "linear", "steps")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where the JSON goes")
    parser.add_argument("parts", nargs="*", default=DEFAULT, help=f"of {', '.join(PARTS)}")
    args = parser.parse_args()
    report = Report(calibrate())
    print(f"copy {report.ceilings.copy / 1e9:.0f} GB/s, matmul {report.ceilings.matmul / 1e12:.0f} TFLOP/s", flush=True)
    for part in args.parts:
        PARTS[part](report)
        torch.cuda.empty_cache()
        report.write(args.out)
    print("\n".join(["", *report.lines]))


if __name__ == "__main__":
    main()
