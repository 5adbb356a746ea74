"""Requests that wait for their grammar: it is compiled in a thread, so that no step waits for it."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, NamedTuple

import anyio
import anyio.to_thread

from octavo.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from octavo.engine_core.grammar.protocol import CompiledGrammar, Grammars
    from octavo.wire.frontend import AddRequest, Grammar

__all__ = ["GrammarDesk", "GrammarReady"]

#: Compiled grammars that are kept, the least recently used go first.
_MAX_KEPT = 128
#: Grammars that are compiled at a time.
_THREADS = 2


class GrammarReady(NamedTuple):
    """A grammar was compiled, or could not be."""

    grammar: Grammar
    error: RequestError | None


class GrammarDesk:
    """Belongs to the engine's event loop. Each grammar is compiled once, however many requests wait for it."""

    def __init__(self, on_ready: Callable[[GrammarReady], None]) -> None:
        """`on_ready` is called on the loop."""
        self._on_ready = on_ready
        self._grammars: Grammars | None = None
        self._kept: OrderedDict[Grammar, CompiledGrammar] = OrderedDict()
        self._waiting: dict[Grammar, dict[int, AddRequest]] = {}  # by request id
        self._todo: deque[Grammar] = deque()
        self._arrived: anyio.Event | None = None  # what `run` waits for

    @property
    def num_waiting(self) -> int:
        """Requests that wait for a grammar."""
        return sum(len(requests) for requests in self._waiting.values())

    def waiting(self) -> list[AddRequest]:
        """Return the requests that wait for a grammar."""
        return [message for requests in self._waiting.values() for message in requests.values()]

    def open(self, grammars: Grammars) -> None:
        """Say what compiles. Once, before the first `find`."""
        self._grammars = grammars

    def find(self, grammar: Grammar) -> CompiledGrammar | None:
        """Return a grammar that is compiled already."""
        compiled = self._kept.get(grammar)
        if compiled is not None:
            self._kept.move_to_end(grammar)
        return compiled

    def hold(self, message: AddRequest) -> None:
        """Keep a request until its grammar is compiled, in place of an earlier attempt."""
        assert message.grammar is not None
        self.drop([message.id])
        if message.grammar not in self._waiting:
            self._waiting[message.grammar] = {}
            self._todo.append(message.grammar)
            if self._arrived is not None:
                self._arrived.set()
        self._waiting[message.grammar][message.id] = message

    def attempt(self, request_id: int) -> int:
        """Return the attempt of a request that waits here; 0 if it does not."""
        return next((held[request_id].attempt for held in self._waiting.values() if request_id in held), 0)

    def drop(self, ids: Iterable[int]) -> None:
        """Forget requests. Ids that do not wait here are ignored."""
        for request_id in ids:
            for requests in self._waiting.values():
                requests.pop(request_id, None)

    def drop_all(self) -> None:
        """Forget all requests."""
        for requests in self._waiting.values():
            requests.clear()

    def take(self, grammar: Grammar) -> list[AddRequest]:
        """Return the requests that waited for a grammar, in the order in which they came."""
        return list(self._waiting.pop(grammar, {}).values())

    async def run(self) -> None:
        """Compile, for ever."""
        limiter = anyio.CapacityLimiter(_THREADS)
        async with anyio.create_task_group() as tasks:
            while True:
                while self._todo:
                    tasks.start_soon(self._compile, self._todo.popleft(), limiter)
                self._arrived = anyio.Event()
                await self._arrived.wait()

    async def _compile(self, grammar: Grammar, limiter: anyio.CapacityLimiter) -> None:
        assert self._grammars is not None
        error: RequestError | None = None
        try:
            compiled = await anyio.to_thread.run_sync(
                self._grammars.compile, grammar, limiter=limiter, abandon_on_cancel=True
            )
        except RequestError as failure:
            error = failure
        else:
            self._kept[grammar] = compiled
            while len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        self._on_ready(GrammarReady(grammar, error))
