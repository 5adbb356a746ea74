"""One request: its tokens, its counters, where it stands."""

from __future__ import annotations

from array import array
from enum import Enum
from typing import TYPE_CHECKING

from octavo.engine_core.news import News
from octavo.engine_core.repetition import turns_in_circles
from octavo.errors import RequestError
from octavo.wire.frontend import Finish

if TYPE_CHECKING:
    from collections.abc import Iterable

    from octavo.engine_core.cache.coordinator import Chains, KvTables
    from octavo.engine_core.grammar.protocol import Matcher
    from octavo.engine_core.sched.budget import SchedLimits
    from octavo.engine_core.sched.draft import Row
    from octavo.wire.frontend import AddRequest, Embeds

__all__ = ["Request", "Status"]

#: Of a number in the vectors that stand for a prompt.
_EMBED_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


class Status(Enum):
    """Where a request stands. WAITING and RUNNING alternate; FINISHED is final."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class Request:
    """A pure state machine. The scheduler moves it; results move its counters.

    What is known is `tokens` and `num_computed`. Rows in flight add to both: `flight_samples` tokens to the first and
    `flight_computed` to the second for certain, and up to `flight_drafts` more to each. One formula gives what is left
    to compute, whatever is in flight, because accepted drafts move both ends alike.
    """

    __slots__ = (
        "arrival_us",
        "attempt",
        "came_us",
        "chains",
        "complete",
        "crashes",
        "crashes_alone",
        "domain",
        "embeds",
        "flight_computed",
        "flight_drafts",
        "flight_samples",
        "flight_steady",
        "generation",
        "high_water",
        "id",
        "key",
        "limit",
        "matcher",
        "min_tokens",
        "name",
        "news",
        "num_computed",
        "plain",
        "pooling",
        "prompt_len",
        "queued_us",
        "reads_all",
        "repetition",
        "row",
        "sampling",
        "slot",
        "started",
        "status",
        "steady_end",
        "stop_ids",
        "tables",
        "tokens",
        "unreported_cached",
        "waits",
        "wake",
    )

    def __init__(
        self, message: AddRequest, chains: Chains, limits: SchedLimits, matcher: Matcher | None = None
    ) -> None:
        """Take a request as the frontend sent it; `matcher` is at the beginning of its grammar, if it has one.

        Raises RequestError for tokens that no worker could compute, or that the grammar does not allow, and for one
        that wants of the model what it does not give.
        """
        if limits.pools != (message.pooling is not None):
            gives, wants = ("vectors", "tokens") if limits.pools else ("tokens", "vectors")
            raise RequestError(f"this model gives {gives}, and the request wants {wants}", "invalid", "model")
        self.tokens, self.prompt_len = _tokens(message, limits)
        self.embeds = _embeds(message, self.prompt_len, limits)  # kept: it may be computed again
        self.id, self.attempt, self.name = message.id, message.attempt, message.name
        self.sampling = message.sampling
        self.stop_ids = frozenset(message.sampling.stop_token_ids)
        extras = message.sampling.extras
        self.min_tokens = 0 if extras is None else extras.min_tokens
        self.repetition = None if extras is None else extras.repetition
        self.news = None if extras is None else News(extras, len(self.tokens) - self.prompt_len)
        self.arrival_us = message.arrival_us
        priority = message.priority if limits.priorities else 0
        self.key = (priority, message.arrival_us, message.id)  # the order of service: lower first
        self.limit = min(self.prompt_len + message.sampling.max_tokens, limits.max_model_len)  # of len(tokens)
        self.pooling = message.pooling  # it ends with its prompt, and gives vectors
        self.reads_all = False  # every token's hidden state is needed: none may come out of the cache
        if message.pooling is not None:
            self.limit = self.prompt_len + 1
            self.reads_all = message.pooling.task.startswith("token_") or not limits.pools_last
        self.chains, self.domain = chains, message.domain
        self.matcher = matcher
        self.complete = False  # the grammar allows nothing more
        if matcher is not None:
            for token in self.tokens[self.prompt_len :]:
                self.complete = matcher.accept(token)
        self.status = Status.WAITING
        self.slot = self.generation = -1  # a worker's row, while RUNNING
        self.tables: KvTables | None = None  # while RUNNING
        self.num_computed = 0
        self.flight_computed = self.flight_drafts = self.flight_samples = 0
        # Nothing but a token to draw.
        self.plain = message.sampling.extras is None and message.grammar is None and message.pooling is None
        self.flight_steady = (
            0  # rows in flight that draw one token and compute one, which the three before do not count
        )
        self.steady_end = -1  # with at most so many tokens its next row is steady; -1: never
        self.wake = 0  # a steady row that has computed so many tokens ends what is steady
        self.row: Row | None = None  # the steady row, always the same one while it runs
        self.came_us = 0  # on the core's clock
        self.queued_us: int | None = None  # how long it waited to run first; for its first delta
        self.started = False  # has run before
        self.unreported_cached: int | None = None  # prompt tokens found in the cache at first; for its first delta
        self.waits = 0  # steps that it waited for another one to compute a block that it needs too
        self.high_water = 0  # the most tokens that were ever computed: beyond it is progress
        self.crashes = 0  # worker crashes since then with this request in flight
        self.crashes_alone = 0  # of these, as a suspect with no other request in flight

    def __repr__(self) -> str:
        return f"Request({self.id}, {self.status.value}, {self.num_computed}/{len(self.tokens)} tokens)"

    @property
    def emitted(self) -> int:
        """How many tokens the client has or gets in the next delta."""
        return len(self.tokens) - self.prompt_len

    @property
    def remaining(self) -> int:
        """Tokens that the next row can compute; rows in flight count as done."""
        return len(self.tokens) + self.flight_samples - self.num_computed - self.flight_computed

    @property
    def tokens_max(self) -> int:
        """The most tokens that there can be when all rows in flight are done."""
        return len(self.tokens) + self.flight_samples + self.flight_drafts + self.flight_steady

    @property
    def reads_prompt(self) -> bool:
        """Whether the whole prompt must be computed, because its log probabilities, or all of it, are to be told."""
        return self.reads_all or (self.news is not None and self.news.reads_prompt)

    @property
    def suspect(self) -> bool:
        """Whether it was in flight in two crashes in a row without progress: it runs alone until it makes some."""
        return self.crashes >= 2

    @property
    def next_position(self) -> int:
        """Tokens that are computed for certain when all rows in flight are done: where the next row begins."""
        return self.num_computed + self.flight_computed + self.flight_steady

    def finished_already(self) -> Finish | None:
        """Return why a request that was replayed has nothing left to do, or None."""
        return self._finish() if self.emitted or self.complete else None

    def start(self, slot: int, generation: int, tables: KvTables, hit: int) -> None:
        """Run: take a slot and the blocks of a prefix hit."""
        self._expect(Status.WAITING)
        self.status = Status.RUNNING
        self.slot, self.generation, self.tables = slot, generation, tables
        self.num_computed = hit
        if self.news is not None:
            self.news.started()
        if not self.started:
            self.started = True
            self.unreported_cached = min(hit, self.prompt_len)

    def scheduled(self, count: int, drafts: int, samples: bool) -> None:
        """Note that a row is in flight."""
        if count == 1 and samples and not drafts:
            self.flight_steady += 1
            return
        self.flight_computed += count - drafts
        self.flight_drafts += drafts
        self.flight_samples += samples

    def completed(self, count: int, drafts: int, samples: bool, sampled: Iterable[int]) -> Finish | None:
        """Note that a row is done and append what it sampled. Returns why the request ends with it, if it does.

        Tokens after a stop id or beyond the limit are dropped: the worker could not know.
        """
        self._expect(Status.RUNNING)
        if count == 1 and samples and not drafts:
            self.flight_steady -= 1
        else:
            self.flight_computed -= count - drafts
            self.flight_drafts -= drafts
            self.flight_samples -= samples
        self.num_computed += count - drafts
        finish = None
        for position, token in enumerate(sampled):
            self.tokens.append(token)
            self.num_computed += position > 0  # each token after the first was an accepted draft, computed in this row
            if self.matcher is not None and (failure := self._follow(self.matcher, token)) is not None:
                finish = failure
                break
            finish = self._finish()
            if finish is not None:
                break
        if self.pooling is not None and samples:
            finish = Finish("stop")
        if self.num_computed > self.high_water:
            self.high_water = self.num_computed
            self.crashes = self.crashes_alone = 0
        return finish

    def requeue(self) -> KvTables:
        """Wait again, with nothing computed and all tokens kept. Returns the tables, to be closed."""
        self._expect(Status.RUNNING)
        tables = self._leave()
        self.status = Status.WAITING
        return tables

    def finish(self) -> KvTables | None:
        """End. Returns the tables, to be closed, if it was running."""
        if self.status is Status.FINISHED:
            raise ValueError(f"{self} is finished already")
        tables = self._leave() if self.status is Status.RUNNING else None
        self.status = Status.FINISHED
        return tables

    def crashed(self, alone: bool) -> None:
        """Note that the workers died with this request in flight.

        Being alone counts only for a suspect: otherwise two kills from outside would convict a single stream.
        """
        self.crashes_alone += alone and self.suspect
        self.crashes += 1

    def check(self) -> None:
        """Raise AssertionError unless the counters agree with each other and the status."""
        flight = (self.flight_computed, self.flight_drafts, self.flight_samples, self.flight_steady)
        if self.status is not Status.RUNNING:
            assert self.tables is None and self.slot == -1 and not any(flight) and self.num_computed == 0, self
            return
        assert self.tables is not None and self.slot >= 0 and min(flight) >= 0, self
        assert self.remaining >= 1 and self.num_computed < len(self.tokens) < self.limit, self
        assert self.tokens_max <= self.limit, self
        assert self.steady_end < 0 or (self.row is not None and self.flight_computed == 0), self

    def _follow(self, matcher: Matcher, token: int) -> Finish | None:
        """Note a token in the grammar. Returns the end of a request whose token is not allowed: masks went wrong."""
        try:
            self.complete = matcher.accept(token)
        except RequestError as error:
            return Finish("error", message=error.message)
        return None

    def _finish(self) -> Finish | None:
        """Return why the request ends with its last token, or None."""
        tokens = self.tokens
        if tokens[-1] in self.stop_ids and self.emitted > self.min_tokens:
            return Finish("stop", tokens[-1])
        if self.complete:
            return Finish("stop")
        if len(tokens) >= self.limit:
            return Finish("length")
        if self.repetition is not None and turns_in_circles(tokens, self.prompt_len, self.repetition):
            return Finish("repetition")
        return None

    def _leave(self) -> KvTables:
        tables = self.tables
        assert tables is not None
        self.tables = None
        self.slot = self.generation = -1
        self.high_water = max(self.high_water, self.num_computed)  # steady rows do not keep it
        self.num_computed = self.flight_computed = self.flight_drafts = self.flight_samples = self.flight_steady = 0
        self.steady_end, self.row = -1, None
        return tables

    def _expect(self, status: Status) -> None:
        if self.status is not status:
            raise ValueError(f"{self} is not {status.value}")


def _embeds(message: AddRequest, rows: int, limits: SchedLimits) -> Embeds | None:
    """Return the vectors that a prompt of `rows` tokens is. Raises RequestError for those that do not fit the model."""
    embeds = message.embeds
    if embeds is None:
        return None

    def refused(text: str) -> RequestError:
        return RequestError(text, "invalid", "prompt_embeds")

    if message.pooling is not None or not limits.hidden_size:
        raise refused("this model does not take prompt_embeds; send a prompt of text or token ids")
    if embeds.width != limits.hidden_size:
        raise refused(
            f"the vectors of prompt_embeds have {embeds.width} numbers and this model's embeddings have "
            f"{limits.hidden_size}; send rows of this model's embedding table, or what takes their place"
        )
    size = _EMBED_BYTES.get(embeds.dtype)
    if size is None or len(embeds.values) != rows * embeds.width * size:
        raise refused(f"{len(embeds.values)} bytes are not {rows} vectors of {embeds.width} {embeds.dtype} numbers")
    return embeds


def _tokens(message: AddRequest, limits: SchedLimits) -> tuple[array[int], int]:
    """Return all tokens of a request and how many of them are its prompt. Raises RequestError."""
    if len(message.prompt) % 4 or len(message.emitted) % 4:
        raise RequestError("the token ids are not packed as 4 bytes each", "invalid", "prompt")
    tokens = array("i", message.prompt)
    length = len(tokens)
    if length == 0:
        raise RequestError("the prompt has no tokens; send at least one", "invalid", "prompt")
    if message.pooling is not None and length > limits.max_model_len:
        raise RequestError(
            f"the text has {length} tokens and the context is {limits.max_model_len}; shorten it", "too_long", "input"
        )
    if message.pooling is None and length >= limits.max_model_len:
        raise RequestError(
            f"the prompt has {length} tokens and the context is {limits.max_model_len}, of which the output needs at"
            " least one; shorten the prompt",
            "too_long",
            "prompt",
        )
    tokens.frombytes(message.emitted)
    if min(tokens) < 0 or max(tokens) >= limits.vocab_size:
        wrong = next(token for token in tokens if not 0 <= token < limits.vocab_size)
        raise RequestError(
            f"token id {wrong} is not in the vocabulary of {limits.vocab_size}; use ids of this model's tokenizer",
            "invalid",
            "prompt",
        )
    return tokens, length
