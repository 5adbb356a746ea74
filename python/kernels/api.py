"""The op families: what each op computes, whichever implementation does it.

Rounding points are those of Transformers, so that bf16 outputs stay within its noise: see each op. Letters in shapes:
T tokens of a step, R rows (requests) of a step, S slots, V vocabulary, H hidden, N query heads, K key-value heads, D
head dimension.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from torch import Tensor

    from octavo.kernels.logit_rows import BannedWords, Edits, Thinking

__all__ = [
    "ActivationOps",
    "AttentionOps",
    "DecodeInputs",
    "DeviceStep",
    "EmbeddingOps",
    "History",
    "Kernels",
    "KvCache",
    "LinearOps",
    "LogitsOps",
    "MaskOps",
    "MoeOps",
    "NormOps",
    "PagedStep",
    "PreparedAttention",
    "QkNorm",
    "ReplayOps",
    "RowAttentionOps",
    "SampleInputs",
    "SampleOps",
    "StateOps",
]


class LinearOps(Protocol):
    """Matrix products with a weight that stays."""

    def pack(self, weight: Tensor) -> Tensor:  # [out, in] dtype -> opaque
        """Return `weight` in the layout that `apply` wants. The caller may drop `weight`."""
        ...

    def unpack(self, packed: Tensor) -> Tensor:  # opaque -> [out, in] dtype
        """Return the weight that was packed; it may share memory with `packed`."""
        ...

    def apply(self, x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:  # [T, in], opaque, [out] -> [T, out]
        """Return x @ weight.T + bias, accumulated in fp32 and rounded once to x's dtype."""
        ...

    @property
    def sum_rows(self) -> int:
        """From how many rows on `apply_onto` is faster than `apply` and a sum that a norm takes along."""
        ...

    def apply_onto(self, x: Tensor, packed: Tensor, onto: Tensor) -> Tensor:  # [T, in], opaque, [T, out] -> [T, out]
        """Return onto + x @ weight.T, rounded once; `apply` and a sum round twice. May overwrite `onto`."""
        ...


class EmbeddingOps(Protocol):
    """Rows of a table."""

    def lookup(self, ids: Tensor, table: Tensor, first: int) -> Tensor:  # [T] int32, [rows, H] dtype -> [T, H] dtype
        """Return table[ids - first]; zeros for ids that are not in first … first + rows - 1."""
        ...


class NormOps(Protocol):
    """Normalisation over the last dimension."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:  # [..., H] dtype, [H] -> [..., H] dtype
        """Return weight * (x / rms(x)), computed in fp32.

        A weight of x's dtype: x / rms(x) is rounded to it before the product (Llama). A float32 weight: the product is
        taken in float32 and rounded once (Gemma, OLMo 2).
        """
        ...

    def add_rms_norm(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:  # [T, H], [T, H] dtype, [H] -> [T, H] dtype, twice
        """Return (rms_norm(sum), sum) with sum = x + residual in x's dtype. Either input may be overwritten."""
        ...

    def layer_norm(
        self, x: Tensor, weight: Tensor, bias: Tensor, eps: float
    ) -> Tensor:  # [T, H], [H], [H] dtype -> [T, H] dtype
        """Return (x - mean(x)) / sqrt(var(x) + eps) * weight + bias, computed in fp32 and rounded once."""
        ...


class ActivationOps(Protocol):
    """Elementwise functions between matrix products."""

    def silu_mul(self, gate_up: Tensor) -> Tensor:  # [T, 2I] dtype -> [T, I] dtype
        """Return silu(gate) * up, of the two halves; silu is rounded to the dtype before the product."""
        ...

    def gelu_mul(self, gate_up: Tensor) -> Tensor:  # [T, 2I] dtype -> [T, I] dtype
        """Return gelu(gate) * up, of the two halves, with the tanh form of gelu, rounded before the product."""
        ...

    def gelu(self, x: Tensor) -> Tensor:  # [T, I] dtype -> [T, I] dtype
        """Return gelu(x) in its tanh form."""
        ...

    def gelu_erf(self, x: Tensor) -> Tensor:  # [T, I] dtype -> [T, I] dtype
        """Return gelu(x) as it is defined, by the error function."""
        ...

    def gelu_erf_mul(self, gate_up: Tensor) -> Tensor:  # [T, 2I] dtype -> [T, I] dtype
        """Return gelu_erf(gate) * up, of the two halves, rounded before the product."""
        ...


class MoeOps(Protocol):
    """Gated feed-forward layers of many experts, of which each token takes some."""

    def apply(
        self, x: Tensor, experts: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor
    ) -> Tensor:  # [T, H] dtype, [T, k] int64, [T, k] float32, [E, 2I, H], [E, H, I] dtype -> [T, H] dtype
        """Return the sum over a token's k experts e of share * down[e] @ (silu(g) * u), g and u of gate_up[e] @ x.

        A token's experts are distinct. Products are rounded to the dtype as in LinearOps and ActivationOps.
        """
        ...


@dataclass(frozen=True, slots=True)
class KvCache:
    """The keys and values of one layer. The layout belongs to the AttentionOps that made it."""

    k: Tensor  # dtype; the shape is the maker's own
    v: Tensor  # dtype; likewise


@dataclass(frozen=True, slots=True)
class PagedStep:
    """One step of one KV group: which tokens of which rows, and where their keys and values lie.

    Rows come in the order of the plan; a row's tokens are consecutive positions starts[r] … starts[r] + counts[r] - 1.
    The first `num_decodes` rows have one token each.
    """

    starts: list[int]  # R; tokens of the row that are in the cache before this step
    counts: list[int]  # R; tokens of this step
    num_decodes: int
    block_tokens: int
    tables: Tensor  # [R, blocks] int32, device: block ids, valid as far as the row's tokens go
    rows: Tensor  # [T] int64, device: the row of each token
    positions: Tensor  # [T] int64, device


@dataclass(frozen=True, slots=True)
class QkNorm:
    """RMS norms over each head of queries and keys, before the rotation. The weights' dtype as in `rms_norm`."""

    q: Tensor  # [D] dtype or float32
    k: Tensor  # [D] likewise
    eps: float


class PreparedAttention(Protocol):
    """The attention of one step and KV group; made once, used by every layer of the group."""

    def rotate_and_write(
        self, q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, cache: KvCache, norm: QkNorm | None = None
    ) -> Tensor:  # [T, N, D], [T, K, D], [T, K, D], [T, D], [T, D] dtype -> [T, N, D] dtype
        """Return q, normed if so asked and rotated; put k, likewise, and v into the cache at the tokens' places.

        x rotated is x * cos + rotate_half(x) * sin, each product and the sum in the dtype of cos and sin, which is x's
        or float32. May overwrite `k`.
        """
        ...

    def attend(
        self, q: Tensor, cache: KvCache, scale: float, window: int = 0, softcap: float = 0.0
    ) -> Tensor:  # [T, N, D] dtype -> [T, N, D] dtype
        """Return softmax(scale * q k^T) v over each token's row up to the token itself; softmax in fp32.

        Query head n reads key-value head n // (N // K). A token sees at most `window` keys, its own included (0: all);
        what lies left of every window need not be in the cache. Scores pass through softcap * tanh(score / softcap)
        (0: as they are).
        """
        ...


class AttentionOps(Protocol):
    """Causal attention over a paged cache."""

    def allocate(
        self, num_blocks: int, block_tokens: int, heads: int, head_dim: int, dtype: str, device: str
    ) -> KvCache:
        """Return a zero-filled cache of one layer for `heads` key-value heads."""
        ...

    def prepare(self, step: PagedStep, heads: int) -> PreparedAttention:
        """Return the attention of one step for a group of layers with `heads` key-value heads each."""
        ...


class RowAttentionOps(Protocol):
    """Attention within rows that stand whole in a step: nothing is cached, and tokens see those that follow."""

    def rotate(
        self, x: Tensor, cos: Tensor, sin: Tensor
    ) -> Tensor:  # [T, N, D], [T, D], [T, D] dtype -> [T, N, D] dtype
        """Return x * cos + rotate_half(x) * sin."""
        ...

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, counts: Sequence[int], scale: float, reach: int = 0
    ) -> Tensor:  # [T, N, D] dtype, three times -> [T, N, D] dtype
        """Return softmax(scale * q k^T) v over the tokens of each token's row; softmax in fp32.

        Rows follow each other, `counts` tokens each. A token sees at most `reach` tokens to either side (0: all).
        """
        ...


@dataclass(frozen=True, slots=True)
class SampleInputs:
    """What decides the tokens of the rows that draw."""

    temperature: Tensor  # [R] float32, device; 0: greedy
    top_k: Tensor  # [R] int64, device; 0: all
    top_p: Tensor  # [R] float32, device; 1: all
    seed: Tensor  # [R] int64, device: the bits of a u64
    position: Tensor  # [R] int64, device: index in the sequence of the token to draw
    all_greedy: bool  # of the rows; these three let an implementation leave work out
    any_top_k: bool
    any_top_p: bool


class SampleOps(Protocol):
    """From logits to tokens."""

    def sample(self, logits: Tensor, inputs: SampleInputs) -> Tensor:  # [R, V] dtype -> [R] int64
        """Return argmax over the kept tokens of logits / temperature + g(seed, position, token), in float32.

        g is standard Gumbel noise from a counter (see ref/philox.py): a token depends on nothing but its own row.
        Kept are, in this order: with top_k, tokens with at most top_k - 1 greater logits; with top_p, tokens such that
        the mass of greater logits is below top_p, of the distribution that temperature and top_k leave. Ties are
        kept or dropped together.
        """
        ...


@dataclass(frozen=True, slots=True)
class History:
    """The tokens of some rows so far."""

    tokens: Tensor  # [R, L] int32, device: valid up to the row's length
    prompts: Tensor  # [R] int64, device: how many of them are the prompt
    lengths: Tensor  # [R] int64, device


class LogitsOps(Protocol):
    """What few requests ask for: changes to their rows' logits before a token is drawn, and log probabilities."""

    def penalize(
        self, logits: Tensor, history: History, penalties: Tensor
    ) -> Tensor:  # [R, V] float32, [R, 3] float32 -> [R, V] float32
        """Apply repetition, frequency and presence penalties (the columns of `penalties`, neutral 1, 0, 0).

        Tokens of prompt or output: positive logits are divided by the first, others multiplied. Tokens of the output:
        the second is subtracted as often as they stand there, the third once.
        """
        ...

    def keep_min_p(
        self, logits: Tensor, temperature: Tensor, min_p: Tensor
    ) -> Tensor:  # [R, V] float32, [R] float32, [R] float32 -> [R, V] float32
        """Return -inf where a token's probability at this temperature is below min_p times that of the best."""
        ...

    def edit(self, logits: Tensor, edits: Sequence[Edits]) -> None:  # [R, V] float32, changed
        """Leave the allowed tokens of each row, add its biases, set its banned tokens to -inf. Rows come once."""
        ...

    def ban_words(
        self, logits: Tensor, tokens: Tensor, banned: Sequence[BannedWords]
    ) -> None:  # [R, V] float32, changed; [S, L] int32
        """Set to -inf the last token of each word whose other tokens are the last ones of a row's output."""
        ...

    def end_thinking(
        self, logits: Tensor, tokens: Tensor, thinking: Sequence[Thinking]
    ) -> None:  # [R, V] float32, changed; [S, L] int32
        """Leave nothing but the next token of the `end` marker where a block of thoughts is open and `budget` is spent.

        A block begins behind a `start` marker and ends with a `close` marker. All blocks count that the output has
        begun, and the one that the prompt leaves open; what ends a block is no thought. The token left has logit 0.
        """
        ...

    def logprobs(
        self, scores: Tensor, chosen: Tensor, top: int, ids: Tensor | None, normalize: bool
    ) -> Tensor:  # [R, V] float32, [R] int64, [n] int64 -> [R, 2 W + 1] int32
        """Return each row's W token ids, the bits of their W float32 values, and the chosen token's rank.

        The tokens are the chosen one, then the `top` best, best first, or `ids` in their order. Values are scores, or
        with `normalize` their log softmax. The rank is 1 for the best.
        """


class MaskOps(Protocol):
    """Which tokens rows may draw."""

    def apply_token_mask(
        self, logits: Tensor, rows: Tensor, masks: Tensor
    ) -> None:  # [R, V] dtype, [M] int64, [M, ceil(V / 32)] int32
        """Set logits[rows[i], t] = -inf, in place, where bit t % 32 of masks[i, t // 32] is 0. Rows are distinct."""
        ...


class StateOps(Protocol):
    """The slots' arrays on the device, and a step's inputs out of them."""

    def scatter(
        self, target: Tensor, rows: Tensor, columns: Tensor, values: Tensor
    ) -> None:  # [S, L] int32, [n] int64, [n] int64, [n] int32
        """Set target[rows[i], columns[i]] = values[i]; no place comes twice."""
        ...

    def gather_ids(
        self, tokens: Tensor, slots: Tensor, positions: Tensor
    ) -> Tensor:  # [S, L] int32, [T] int64, [T] int64 -> [T] int32
        """Return tokens[slots[i], positions[i]]."""
        ...

    def append(
        self, tokens: Tensor, lengths: Tensor, slots: Tensor, sampled: Tensor
    ) -> None:  # [S, L] int32, [S] int32, [R] int64, [R] int64
        """Set tokens[slots[i], lengths[slots[i]]] = sampled[i] and count it. Slots are distinct."""
        ...


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """A step whose decode rows are known to the device alone, so that a recorded step can be replayed.

    The first `num_decodes` rows have `queries` tokens each, and those lie first among the step's tokens. `starts` and
    `counts` describe the rows behind them; with none, every size is fixed and the tensors may change under a recording.
    """

    num_decodes: int
    queries: int
    lengths: Tensor  # [num_decodes] int32, device: tokens of the row with those of this step; 0: padding, -1: no row
    tables: Tensor  # [R, blocks] int32, device: block ids, valid as far as the row's tokens go
    rows: Tensor  # [T] int64, device: the row of each token
    positions: Tensor  # [T] int64, device: negative for the tokens of padding
    block_tokens: int
    longest: int = 0  # no decode row has more tokens; 0: unknown
    starts: tuple[int, ...] = ()  # of the rows behind the decode rows
    counts: tuple[int, ...] = ()
    work: Tensor | None = None  # [ReplayOps.work_size] int32, device: rows behind the decode rows, known there alone


@dataclass(frozen=True, slots=True)
class DecodeInputs:
    """The fixed tensors from which a recorded decode step reads its rows."""

    ids: Tensor  # [R] int32
    positions: Tensor  # [R] int64; -1 for padding
    places: Tensor  # [R] int64: positions, 0 for padding
    nexts: Tensor  # [R] int64: positions of the tokens that are drawn
    lengths: Tensor  # [R] int32; 0 for padding
    tables: Tensor  # [R, blocks] int32

    def first(self, rows: int) -> DecodeInputs:
        """Return the first `rows` rows of each tensor."""
        return DecodeInputs(
            self.ids[:rows],
            self.positions[:rows],
            self.places[:rows],
            self.nexts[:rows],
            self.lengths[:rows],
            self.tables[:rows],
        )


class ReplayOps(Protocol):
    """What a device that can record its launches needs besides, so that a decode step is one launch."""

    @property
    def most_rows(self) -> int:
        """Rows of a step from which on recording gains nothing."""
        ...

    def gather_decodes(
        self, tokens: Tensor, lengths: Tensor, tables: Tensor, slots: Tensor, out: DecodeInputs, block_tokens: int
    ) -> None:  # [S, L] int32, [S] int32, [S, blocks] int32, [R] int64
        """Write the inputs of a decode step of `slots` into `out`. Negative slots are padding."""
        ...

    def prepare(self, step: DeviceStep, heads: int) -> PreparedAttention:
        """Return the attention of a step without rows behind the decode rows. It neither reads nor writes padding."""
        ...

    def work_size(self, tokens: int) -> int:
        """Return the length of `DeviceStep.work` for at most `tokens` tokens."""
        ...

    def cut(
        self,
        starts: np.ndarray[Any, Any],
        counts: np.ndarray[Any, Any],
        first: int,
        heads: int,
        work: np.ndarray[Any, np.dtype[np.int32]],
    ) -> bool:  # [R] int64, [R] int64, [work_size] int32, written
        """Describe rows behind `first` decode rows of one token each in `work`; return whether they fit.

        Row r computes `counts[r]` tokens from `starts[r]` on. `heads`: key-value heads of a layer, at most.
        """
        ...

    def rehearse(self, body: Callable[[], object], threads: int, whole: bool) -> int:
        """Run `body`, which builds runners and steps them, so that all it launches is compiled and loaded afterwards.

        It runs twice: first nothing of ours is launched, but compiled in `threads` threads. Recordings that it makes
        hold nothing. `whole`: what is recorded later launches nothing else than was recorded here, and need not run
        before. Returns the number of kernels that had to be compiled.
        """
        ...

    def record(self, body: Callable[[], object]) -> Callable[[], None]:
        """Run `body` once, unless it was rehearsed whole, then record what it launches; return what replays it.

        A replay is on the current stream. `body` must not wait for the device, and what it returns to Python in the
        recording stays where it is. Memory of recordings is shared: one replay may overwrite what an earlier one of
        another recording left.
        """
        ...


@dataclass(frozen=True, slots=True)
class Kernels:
    """One implementation of each family, chosen once for a device and dtype and handed to layers."""

    linear: LinearOps
    embedding: EmbeddingOps
    norm: NormOps
    activation: ActivationOps
    moe: MoeOps
    attention: AttentionOps
    rows: RowAttentionOps
    sample: SampleOps
    mask: MaskOps
    state: StateOps
    logits: LogitsOps
    replay: ReplayOps | None = None  # None: steps are not recorded
