"""A whole decode step of Qwen3-8B out of our kernels, in one CUDA graph: what a runner could reach on this device.

Random weights, random keys; the products are those of `Kernels.linear`, what lies between them is one kernel each.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bench.measure import Report, time_graph
from bench.shapes import DECODES, QWEN3_8B, Shape, longest_class
from octavo.kernels.api import KvCache, QkNorm, SampleInputs
from octavo.kernels.triton.attention import TritonAttention
from octavo.kernels.triton.build import triton_kernels
from octavo.kernels.triton.step import DeviceStep

__all__ = ["decode_steps"]

BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Weights:
    """Random weights of a dense decoder."""

    layers: list[dict[str, torch.Tensor]]
    embedding: torch.Tensor
    head: torch.Tensor
    norm: torch.Tensor
    qk: QkNorm

    @staticmethod
    def random(shape: Shape) -> Weights:
        def make(*size: int) -> torch.Tensor:
            return torch.randn(size, dtype=torch.bfloat16, device="cuda").mul_(0.02)

        layers = [{name: make(*size) for name, size in shape.products.items()} for _ in range(shape.layers)]
        table = make(shape.vocab, shape.hidden)
        qk = QkNorm(make(shape.head_dim), make(shape.head_dim), 1e-6)
        return Weights(layers, table, make(shape.vocab, shape.hidden), make(shape.hidden), qk)


class Step:
    """One decode step of `rows` rows with `length` tokens each."""

    def __init__(self, shape: Shape, weights: Weights, rows: int, length: int) -> None:
        self.shape, self.weights, self.rows = shape, weights, rows
        self.kernels = triton_kernels("cuda", "bfloat16")
        blocks = -(-length // BLOCK_TOKENS)
        order = torch.randperm(rows * blocks, dtype=torch.int32, device="cuda").view(rows, blocks)
        positions = torch.full((rows,), length - 1, dtype=torch.int64, device="cuda")
        lengths = torch.full((rows,), length, dtype=torch.int32, device="cuda")
        each = torch.arange(rows, device="cuda")
        step = DeviceStep(rows, 1, lengths, order, each, positions, BLOCK_TOKENS, longest_class(length))
        attention = self.kernels.attention
        assert isinstance(attention, TritonAttention)
        self.prepared = attention.prepare_device(step, shape.kv_heads)
        size = (rows * blocks, shape.kv_heads, BLOCK_TOKENS, shape.head_dim)
        self.caches = [
            KvCache(*(torch.randn(size, dtype=torch.bfloat16, device="cuda") for _ in range(2)))
            for _ in range(shape.layers)
        ]
        self.cos, self.sin = (torch.randn(rows, shape.head_dim, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        self.ids = torch.randint(0, shape.vocab, (rows,), dtype=torch.int32, device="cuda")
        zero = torch.zeros(rows, dtype=torch.int64, device="cuda")
        self.inputs = SampleInputs(zero.float(), zero, zero.float() + 1, zero, positions, True, False, False)

    def run(self) -> torch.Tensor:  # -> [rows] int64
        k, s, w = self.kernels, self.shape, self.weights
        residual = k.embedding.lookup(self.ids, w.embedding, 0)
        x = k.norm.rms_norm(residual, w.norm, 1e-6)
        for layer, cache in zip(w.layers, self.caches, strict=True):
            qkv = k.linear.apply(x, layer["qkv"], None).view(self.rows, -1, s.head_dim)
            q, key, value = qkv.split([s.heads, s.kv_heads, s.kv_heads], dim=1)
            q = self.prepared.rotate_and_write(q, key, value, self.cos, self.sin, cache, norm=w.qk)
            out = self.prepared.attend(q, cache, s.head_dim**-0.5).view(self.rows, -1)
            x, residual = k.norm.add_rms_norm(k.linear.apply(out, layer["o"], None), residual, w.norm, 1e-6)
            hidden = k.activation.silu_mul(k.linear.apply(x, layer["gate_up"], None))
            x, residual = k.norm.add_rms_norm(k.linear.apply(hidden, layer["down"], None), residual, w.norm, 1e-6)
        return k.sample.sample(k.linear.apply(x, w.head, None), self.inputs)


def decode_steps(report: Report) -> None:
    """Time whole steps; the floor is weights and keys read once, or the products' operations."""
    shape = QWEN3_8B
    weights = Weights.random(shape)
    for name, rows, length in DECODES:
        step = Step(shape, weights, rows, length)
        size = 2.0 * shape.matmul_weights + shape.layers * rows * shape.kv_bytes(length)
        report.add(
            f"8b_decode_graph_{name}", "octavo", time_graph([step.run], 9), size, 2.0 * rows * shape.matmul_weights
        )
        del step
        torch.cuda.empty_cache()
