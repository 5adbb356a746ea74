"""Messages between an engine core and its workers.

Both ends are the same version, exactly, so this wire may change freely. A message is one MessagePack frame, tensors
would be extra frames. Arrays are packed little-endian int32 unless said otherwise. A slot is a worker's row for one
request, for the request's whole life; its generation tells late results from those of the next owner.
"""

from __future__ import annotations

from octavo.wire.frontend import Embeds, Logprobs, Message, Pooled, Pooling, Record, SamplingParams, Tokens
from octavo.wire.pooling_plan import PoolingPlan  # noqa: TC001  # msgspec reads it

__all__ = [
    "AllocateKv",
    "BlockDiff",
    "CoreToWorker",
    "Fault",
    "Heartbeat",
    "Init",
    "KvGroupAlloc",
    "KvReady",
    "KvSpec",
    "KvTensor",
    "ModelControl",
    "ModelControlDone",
    "NewRow",
    "Ready",
    "RowLogprobs",
    "RowPooled",
    "SamplePlan",
    "Shutdown",
    "StepPlan",
    "StepResult",
    "WorkerHello",
    "WorkerToCore",
]

#: Packed little-endian int32.
Int32s = bytes


class WorkerHello(Message, frozen=True):
    """worker -> core: first message after connecting."""

    version: str
    rank: int
    pid: int
    incarnation: int


class Init(Message, frozen=True):
    """core -> worker: build the model and load its weights."""

    rank: int
    world_size: int
    rendezvous: str  # of torch.distributed, e.g. "file:///…"; "" when world_size is 1
    model: str  # path of a folder or of a .gguf file
    dtype: str  # "float32" or "bfloat16"
    device: str  # "cpu", "cuda:0"
    load_format: str  # "auto", "dummy"
    seed: int  # of dummy weights
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    threads: int
    logprobs_mode: str = "raw_logprobs"  # or "raw_logits", "processed_logprobs", "processed_logits"
    graph_sizes: tuple[int, ...] | None = None  # of recorded steps; None: a table that fits; (): none
    hf_overrides: str = ""  # a JSON object: keys of the model's config to replace
    memory_utilization: float = 0.0  # share of a GPU that may be used; 0: it is not to be found out what is left
    weight_key: str = "0"  # what must be loaded; "0": the checkpoint as it is
    overlays: tuple[str, ...] = ()  # folders of later weights, to be loaded over the checkpoint, in order
    pooling: PoolingPlan | None = None  # None: the model draws tokens
    expert_rank: int = 0  # among the ranks of all engine cores, over which experts are spread
    expert_ranks: int = 1
    expert_rendezvous: str = ""  # as `rendezvous`, of these ranks


class KvTensor(Record, frozen=True):
    """One cached tensor of a layer."""

    name: str  # "k", "v", "state"
    shape: tuple[int, ...]  # per token (or per state), on this rank
    dtype: str
    replicated: bool = False  # over ranks; otherwise sharded by head


class KvSpec(Record, frozen=True):
    """What one layer keeps. Layers with equal kind, window and tensors form a group."""

    layer: int
    kind: str  # "full", "window", "state"
    tensors: tuple[KvTensor, ...]
    window: int = 0  # tokens that a query sees, itself included; with "window"
    shares: int | None = None  # the layer whose cache this one uses


class Ready(Message, frozen=True):
    """worker -> core: weights are loaded."""

    rank: int
    vocab_size: int
    kv_specs: tuple[KvSpec, ...]
    free_bytes: int  # of the device, after loading
    weight_bytes: int
    load_ms: int
    total_bytes: int = 0  # of a GPU whose memory was profiled, as the next two
    step_bytes: int = 0  # most that a step takes
    kv_bytes: int = 0  # what is left for the KV cache; negative: so much is missing
    weight_key: str = "0"  # of the weights that were loaded
    hidden_size: int = 0  # numbers of a vector that may stand for a token; 0: none may


class KvGroupAlloc(Record, frozen=True):
    """One KV group: the layers that share block ids."""

    group: int
    block_tokens: int
    num_blocks: int  # block 0 is the null block, zero-filled, never written
    layers: tuple[int, ...]


class AllocateKv(Message, frozen=True):
    """core -> worker."""

    groups: tuple[KvGroupAlloc, ...]


class KvReady(Message, frozen=True):
    """worker -> core: plans may come."""

    rank: int
    bytes: int


class NewRow(Record, frozen=True):
    """A request takes a slot. Tokens it emitted before (preemption, crash) are part of `tokens`."""

    slot: int
    generation: int
    tokens: Tokens
    prompt_len: int  # of `tokens`, those that the client sent
    computed: int  # of `tokens`, those whose KV is in the blocks already (prefix hit)
    sampling: SamplingParams
    pooling: Pooling | None = None  # what it wants instead of tokens
    embeds: Embeds | None = None  # what its first `prompt_len` tokens are; None: their ids


class BlockDiff(Record, frozen=True):
    """Entries of one slot's block table: `ids` from index `start` on."""

    group: int
    slot: int
    start: int
    ids: Int32s


class StepPlan(Message, frozen=True):
    """core -> worker: one step. Rows are in order, decode rows first.

    A row computes the KV of `counts` tokens from its own `computed` on and advances it; token ids never travel for
    tokens that the worker sampled itself. `samples` is 1 where the row reaches the end of its tokens and draws.
    `drafts` of the `counts` tokens of a row are drafts that the worker proposes and verifies by itself.
    A plan without rows is made where experts are spread over ranks: others need this rank's in that step.
    """

    step: int
    new: tuple[NewRow, ...]
    released: Int32s  # slots given back before this step
    blocks: tuple[BlockDiff, ...]
    rows: Int32s  # slots
    counts: Int32s
    samples: bytes  # u8
    drafts: bytes = b""  # u8; empty: none
    deferred: bool = False  # sample: deferred. The next message is the SamplePlan of this step; else sample: now
    unfinished: bool | None = None  # not None: all expert ranks tell each other in this step whether they have work


class SamplePlan(Message, frozen=True):
    """core -> worker: how the rows of a deferred step draw. Follows its StepPlan at once.

    The forward need not wait for it. Rows that are not among `slots` draw without a mask.
    """

    step: int
    slots: Int32s  # of rows that draw from a part of the vocabulary
    masks: bytes  # of each slot, ceil(vocab_size / 32) little-endian u32: bit t % 32 of word t // 32 allows token t


class RowLogprobs(Record, frozen=True):
    """Log probabilities of one row of a step."""

    slot: int
    generation: int
    values: Logprobs


class RowPooled(Record, frozen=True):
    """The vectors of one row of a step that reached the end of its tokens."""

    slot: int
    generation: int
    values: Pooled


class StepResult(Message, frozen=True):
    """worker -> core, from the output rank only, in the order of plans. One entry for each sampling row.

    A row yields 1 to drafts+1 tokens, or none where it pools; `lengths` says how many of `tokens` are whose.
    """

    step: int
    slots: Int32s
    generations: Int32s
    lengths: Int32s
    tokens: Tokens
    compute_us: int
    logprobs: tuple[RowLogprobs, ...] = ()  # of the tokens of rows that asked for them
    prompt_logprobs: tuple[RowLogprobs, ...] = ()  # of the prompt tokens that follow those a row computed
    pooled: tuple[RowPooled, ...] = ()  # of rows that pool
    unfinished: bool | None = None  # whether any expert rank has work, where the plan asked


class Heartbeat(Message, frozen=True):
    """worker -> core, every second, from a thread of its own. No change of all three for long is a hang."""

    rank: int
    phase: str  # "loading", "idle", "step"
    step: int
    layer: int


class Fault(Message, frozen=True):
    """worker -> core: an exception; the worker exits after a fault that is not in loading a model."""

    rank: int
    step: int  # 0 outside a step
    kind: str  # "model" (cannot load: final), "step", "protocol", "peer" (a rank of another core is gone)
    message: str
    traceback: str


class ModelControl(Message, frozen=True):
    """core -> worker: an operation on the model, between steps, with an answer. workers/control.py has the list."""

    id: int
    op: str
    args: dict[str, str]


class ModelControlDone(Message, frozen=True):
    """worker -> core: an operation is done, or was refused and changed nothing that is served."""

    rank: int
    id: int
    result: dict[str, str]
    error: str | None = None
    code: str = ""  # as in ControlDone
    param: str | None = None


class Shutdown(Message, frozen=True):
    """core -> worker: finish the current step and exit 0."""


CoreToWorker = Init | AllocateKv | StepPlan | SamplePlan | ModelControl | Shutdown
WorkerToCore = WorkerHello | Ready | KvReady | StepResult | ModelControlDone | Heartbeat | Fault
