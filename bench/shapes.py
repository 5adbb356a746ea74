"""The shapes that the benchmarks of issue 7 share."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DECODES", "QWEN3_06B", "QWEN3_8B", "Shape", "longest_class"]


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a dense decoder."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int

    @property
    def qkv(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def products(self) -> dict[str, tuple[int, int]]:
        """Return [out, in] of a layer's weights, in order of use."""
        return {
            "qkv": (self.qkv, self.hidden),
            "o": (self.hidden, self.heads * self.head_dim),
            "gate_up": (2 * self.intermediate, self.hidden),
            "down": (self.hidden, self.intermediate),
        }

    @property
    def matmul_weights(self) -> int:
        """Return how many weights a decode step reads, lm_head included."""
        return self.layers * sum(out * size for out, size in self.products.values()) + self.vocab * self.hidden

    def kv_bytes(self, tokens: int) -> int:
        """Return the bytes of the keys and values of `tokens` tokens in one layer, in bf16."""
        return tokens * self.kv_heads * self.head_dim * 2 * 2


QWEN3_8B = Shape(36, 4096, 32, 8, 128, 12288, 151936)
QWEN3_06B = Shape(28, 1024, 16, 8, 128, 3072, 151936)

#: Decode batches: name, rows, tokens of each row.
DECODES = (
    ("b1", 1, 256),
    ("b32", 32, 256),
    ("b64", 64, 256),
    ("b128", 128, 256),
    ("b256", 256, 256),
    ("1x16k", 1, 16384),
    ("8x16k", 8, 16384),
    ("16x8k", 16, 8192),
    ("32x8k", 32, 8192),
    ("64x4k", 64, 4096),
    ("128x2k", 128, 2048),
)


def longest_class(length: int) -> int:
    """Return the bound on lengths that a decode graph is captured for: 1,024 tokens, or none (0)."""
    return 1024 if length <= 1024 else 0
