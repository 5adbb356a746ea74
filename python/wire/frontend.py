"""Messages between the Rust frontend and an engine core.

This wire is append-only: a field is never removed, moved or given another meaning, new fields come last and have a
default, and optional features ride in nested structs, one position each. Both languages accept arrays that are
shorter (defaults fill) or longer (the rest is ignored) than they know. tests/wire/golden.json holds byte vectors that
Python and Rust both decode and encode.

On the socket a message is ``[Header, body, *aux]``: one frame each, MessagePack except for the aux frames, which are
raw bytes. Token ids are packed little-endian int32 (``Tokens``).
"""

from __future__ import annotations

import msgspec

__all__ = [
    "AbortRequests",
    "Ack",
    "AddRequest",
    "Control",
    "ControlDone",
    "CoreMessage",
    "Delta",
    "Deltas",
    "Domain",
    "Embeds",
    "EngineFault",
    "EngineInfo",
    "EngineReady",
    "Finish",
    "Floats",
    "FrontendMessage",
    "Goodbye",
    "Grammar",
    "Header",
    "Hello",
    "Histogram",
    "Logprobs",
    "ModelState",
    "Pooled",
    "Pooling",
    "Refuse",
    "RepetitionDetection",
    "RequestRejected",
    "SamplingExtras",
    "SamplingParams",
    "Stats",
    "StepStats",
    "ThinkingBudget",
    "Tokens",
    "Welcome",
]

#: Token ids as packed little-endian int32; its length is 4 times the number of tokens.
Tokens = bytes
#: Packed little-endian float32.
Floats = bytes


class Record(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of the nested records, which carry no tag."""


class Message(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """Base of the messages: the class name is element 0 of the array."""


class Header(Record, frozen=True):
    """Precedes every body. Sequence numbers count within one session, a pair of incarnations."""

    incarnation: int  # u64, drawn at random when the sending process started
    session: int  # u64, the receiver's incarnation as the sender knows it; 0 in Hello
    seq: int  # u64, 1 for the first numbered message of the session; 0: not numbered (Hello, Welcome, Refuse, Ack)
    ack: int  # u64, the highest number received without a gap
    credit: int  # u64, bytes of bodies and aux frames that the receiver of this header may have sent in the session
    epoch: int = 0  # u64, which opening of the session, counted by the frontend; in Hello the last one known, or 0


class Hello(Message, frozen=True):
    """core -> frontend: who connects. Repeated every 500 ms until Welcome or Refuse comes."""

    protocol: int
    version: str
    role: str  # "engine"
    rank: int  # data-parallel rank
    pid: int
    proof: bytes | None = None  # the key that frontend and engine were given


class Welcome(Message, frozen=True):
    """frontend -> core: the session is open; both sides count from 1."""

    protocol: int
    version: str


class Refuse(Message, frozen=True):
    """frontend -> core: no session, and trying again will not help."""

    reason: str


class Ack(Message, frozen=True):
    """Either way, when half of the credit is used up and every second. `sent` beyond what came shows a lost tail."""

    sent: int  # the highest number that the sender of this has sent in the session


class Goodbye(Message, frozen=True):
    """core -> frontend: everything before this is sent; the core leaves when it is acknowledged."""

    reason: str


class RepetitionDetection(Record, frozen=True):
    """End an output that repeats a pattern of so many tokens so many times in a row."""

    max_pattern_size: int
    min_pattern_size: int
    min_count: int


class ThinkingBudget(Record, frozen=True):
    """Force the end of thoughts after so many tokens of them, counted over all blocks of the output."""

    budget: int
    start: Tokens  # the marker behind which thoughts begin
    end: Tokens  # what is forced; it ends thoughts
    close: Tokens = b""  # an end of `end` that ends thoughts too; empty: all of it


class SamplingExtras(Record, frozen=True):
    """What few requests ask for. All defaults ask for nothing."""

    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    min_tokens: int = 0  # no stop id is drawn before so many tokens are out
    bias_ids: Tokens = b""
    biases: Floats = b""  # added to the logits of bias_ids
    allowed_token_ids: Tokens = b""  # empty: all
    bad_words: tuple[Tokens, ...] = ()  # the last token of each is never drawn behind the others
    logprobs: int | None = None  # so many best tokens beside the drawn one; -1: all
    prompt_logprobs: int | None = None  # likewise for each token of the prompt but the first
    logprob_token_ids: Tokens = b""  # these instead of the best ones
    repetition: RepetitionDetection | None = None
    thinking: ThinkingBudget | None = None
    stream_interval: int = 1  # tokens in a delta at least, but for the first and the last


class SamplingParams(Record, frozen=True):
    """How to choose tokens, and when to stop. Validated by the frontend; the core trusts types, not ranges."""

    seed: int  # u64, drawn by the frontend if the client gave none
    max_tokens: int
    temperature: float = 1.0  # 0: greedy
    top_p: float = 1.0
    top_k: int = 0  # 0: all
    stop_token_ids: tuple[int, ...] = ()  # the model's end tokens are among them unless ignore_eos
    extras: SamplingExtras | None = None


class Grammar(Record, frozen=True):
    """What an output must be, from its first token to its end. The frontend has compiled it once: it is valid."""

    kind: str  # how `text` reads: "lark", "json_schema", "regex"
    text: str


class Domain(Record, frozen=True):
    """With whom a request may share KV: two requests meet in the prefix cache only if all of this is equal."""

    salt: str = ""  # the client's `cache_salt`; "": none
    adapter: str = ""  # content id of the adapter; "": none
    media: tuple[str, ...] = ()  # content ids of the media in the prompt, in its order


class Pooling(Record, frozen=True):
    """What a request wants of a model that pools: vectors instead of tokens. The frontend has checked it."""

    task: str  # "embed", "classify": one vector; "token_embed", "token_classify": one for each token
    activate: bool | None = None  # vectors of length 1, or probabilities; None: as the model does by default
    dimensions: int = 0  # the first so many numbers of an embedding; 0: all
    second: int = 0  # index of the first token of a pair's second text; 0: there is none


class Embeds(Record, frozen=True):
    """Vectors that stand for all tokens of the prompt, whose ids then name nothing: they are 0."""

    width: int  # numbers of a vector
    dtype: str  # "float32", "float16", "bfloat16"
    values: bytes  # little-endian, [tokens of the prompt * width]


class AddRequest(Message, frozen=True):
    """frontend -> core. Sent again with a higher attempt and the ids emitted so far after a crash or a gap."""

    id: int  # u64, unique in this incarnation of the frontend
    attempt: int  # 1, 2, ...; a higher one replaces the request, a lower or equal one is dropped
    name: str  # the id that the client sees; for logs
    prompt: Tokens
    emitted: Tokens  # ids the client already has; they count toward max_tokens
    sampling: SamplingParams
    arrival_us: int  # Unix time in microseconds
    priority: int = 0  # lower goes first
    grammar: Grammar | None = None  # None: any text
    domain: Domain | None = None  # None: the one that all share
    pooling: Pooling | None = None  # None: tokens are wanted
    embeds: Embeds | None = None  # None: the prompt is its ids; else `domain` holds the content id of these


class AbortRequests(Message, frozen=True):
    """frontend -> core. Idempotent: unknown ids are ignored."""

    ids: tuple[int, ...]
    reason: str  # "client", "stop", "shutdown", "timeout"


class Control(Message, frozen=True):
    """frontend or supervisor -> core: an operation with an answer (ControlDone of the same id)."""

    id: int
    op: str  # "shutdown", "reset_prefix_cache", "pause", …: engine_core/control has the list
    args: dict[str, str] = {}


class ControlDone(Message, frozen=True):
    """core -> frontend."""

    id: int
    error: str | None = None
    result: dict[str, str] = {}
    code: str = ""  # with an error: "invalid" (the arguments), "conflict" (not in this state), "unsupported", "failed"
    param: str | None = None  # the argument at fault


class Finish(Record, frozen=True):
    """Why a request ended."""

    reason: str  # "stop", "length", "repetition", "abort", "error"
    stop_token: int | None = None  # the stop id that ended it; the id is also the last of the tokens
    message: str | None = None  # with "error": what a client may read


class Logprobs(Record, frozen=True):
    """Log probabilities of consecutive tokens, `width` for each: the token itself, then the others asked for."""

    width: int
    ids: Tokens  # [tokens * width]
    values: Floats  # [tokens * width]
    ranks: Tokens  # [tokens] of the token itself; 1 is the best


class Pooled(Record, frozen=True):
    """The vectors of a request that pools, `width` numbers each."""

    width: int
    values: Floats  # [vectors * width]


class Delta(Record, frozen=True):
    """New tokens of one request."""

    id: int
    attempt: int
    start: int  # index, among all emitted tokens, of the first token here
    tokens: Tokens
    finish: Finish | None = None
    cached_tokens: int | None = None  # prompt tokens found in the prefix cache; in the first delta of an attempt
    logprobs: Logprobs | None = None  # of `tokens`, where they were asked for
    prompt_logprobs: Logprobs | None = None  # of the prompt but its first token; with the first tokens
    queued_us: int | None = None  # from its coming to its first row; in the first delta of an attempt
    pooled: Pooled | None = None  # in the only delta of a request that pools


class Deltas(Message, frozen=True):
    """core -> frontend: one message a step (or more steps, merged, when credit ran out)."""

    step: int
    items: tuple[Delta, ...]


class RequestRejected(Message, frozen=True):
    """core -> frontend: this request cannot run; final."""

    id: int
    attempt: int
    code: str  # "invalid", "too_long", "overloaded"
    message: str
    param: str | None = None  # the request field at fault


class ModelState(Record, frozen=True):
    """What was done to the model of an engine, and whether it runs requests."""

    weight_version: str  # "0": the checkpoint's
    state: str  # "running"; "paused", "sleeping": requests wait; "unusable": they wait, and for how long is bounded
    note: str = ""  # why it is unusable


class EngineInfo(Record, frozen=True):
    """What the frontend must know of a ready engine."""

    model: str
    max_model_len: int
    vocab_size: int  # width of the logits
    num_blocks: int
    block_tokens: int
    max_num_seqs: int
    world_size: int
    dtype: str
    startup_ms: int = 0
    prefix_caching: bool = True
    model_state: ModelState | None = None  # None: runs the checkpoint as it is
    cache_model: str = ""  # the model as the keys of its KV blocks name it; empty: unknown


class EngineReady(Message, frozen=True):
    """core -> frontend: requests may come. Sent again after each restart of the workers, and when `info` changes."""

    info: EngineInfo


class EngineFault(Message, frozen=True):
    """core -> frontend: the workers are gone."""

    kind: str  # "worker_died", "worker_hung", "worker_fault"
    message: str
    restarting: bool  # false: the core gives up and leaves


class Histogram(Record, frozen=True):
    """Observations since the core started, by size."""

    bounds: tuple[float, ...]  # upper bounds, ascending; one more bucket has none
    counts: tuple[int, ...]  # of each bucket alone, len(bounds) + 1
    total: float  # sum of what was observed


class StepStats(Record, frozen=True):
    """What steps were made of, and what they cost the core."""

    waiting_capacity: int  # requests that wait for a place, blocks or budget
    waiting_deferred: int  # that wait for blocks which another request computes
    cached_blocks: int  # KV blocks nobody uses whose content can still be found
    decode_tokens: int  # computed in rows of one known token
    prefill_tokens: int  # computed in other rows
    decode_rows: int
    prefill_rows: int
    scheduler_seconds: Histogram  # to make a plan and to apply its result
    step_tokens: Histogram  # in one step


class Stats(Message, frozen=True):
    """core -> frontend, at most every 500 ms and when the engine falls idle. Counters since the core started."""

    running: int
    waiting: int
    free_blocks: int
    total_blocks: int
    prompt_tokens: int
    generated_tokens: int
    prefix_queries: int  # prompt tokens looked up
    prefix_hits: int  # of these, found
    preemptions: int
    worker_restarts: int
    steps: int
    detail: StepStats | None = None


FrontendMessage = Welcome | Refuse | Ack | AddRequest | AbortRequests | Control
CoreMessage = Hello | Ack | Goodbye | EngineReady | EngineFault | Deltas | RequestRejected | ControlDone | Stats
