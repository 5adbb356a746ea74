"""One request at a time, as a stream."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from octavo.errors import EngineError, RequestError
from octavo.llm.model import LoadedModel, library_config
from octavo.wire.frontend import RequestRejected

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence
    from os import PathLike
    from typing import Self

    from octavo.engine_core.local import LocalEvent
    from octavo.llm.model import Message, Prompt
    from octavo.llm.outputs import RequestOutput
    from octavo.llm.request import Request
    from octavo.llm.sampling import SamplingParams
    from octavo.wire.frontend import EngineInfo

__all__ = ["AsyncLLM"]


class AsyncLLM:
    """A model in this program whose outputs are streamed: any number of requests at once, on any event loop."""

    def __init__(self, model: str | PathLike[str], **settings: Any) -> None:
        """Start to load a model; arguments and errors are those of `LLM`. The first request waits until it is ready."""
        self._model = LoadedModel(library_config(str(model), settings))

    async def ready(self) -> EngineInfo:
        """Wait until the model can work. Raises ConfigError, ModelError, EngineError if it never will."""
        return await asyncio.shield(asyncio.wrap_future(self._model.engine.ready))

    async def generate(
        self, prompt: Prompt, sampling_params: SamplingParams | None = None
    ) -> AsyncGenerator[RequestOutput, None]:
        """Continue a prompt; yield what has come so far whenever more has come, the last one finished.

        Leaving the loop early aborts the request. Raises RequestError for a prompt that cannot be used, EngineError
        when the engine fails.
        """
        info = await self.ready()
        request = await asyncio.to_thread(self._model.completion, prompt, sampling_params, info)
        async with contextlib.aclosing(self._stream(request)) as outputs:
            async for output in outputs:
                yield output

    async def chat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams | None = None,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Answer a conversation; all else is as for `generate`."""
        template = {
            "add_generation_prompt": add_generation_prompt,
            "continue_final_message": continue_final_message,
            "chat_template_kwargs": dict(chat_template_kwargs or {}),
        }
        info = await self.ready()
        request = await asyncio.to_thread(self._model.chat, messages, sampling_params, info, template)
        async with contextlib.aclosing(self._stream(request)) as outputs:
            async for output in outputs:
                yield output

    async def close(self) -> None:
        """Stop the workers; requests that run fail with EngineError. Again: nothing."""
        await asyncio.to_thread(self._model.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _stream(self, request: Request) -> AsyncGenerator[RequestOutput, None]:
        inbox = _AsyncInbox()
        children = {child.id: child for child in request.children}
        self._model.engine.submit([child.message() for child in request.children], inbox)
        try:
            while not request.finished:
                for event in await inbox.take():
                    child = children[event.id]
                    if child.advance(event):
                        self._model.engine.abort([child.id])
                    if isinstance(event, RequestRejected):
                        raise RequestError(event.message, event.code, event.param)
                if request.error is not None:
                    raise EngineError(request.error)
                yield request.output()
        finally:
            open_ = [child.id for child in request.children if child.finish is None]
            if open_:
                self._model.engine.abort(open_)


class _AsyncInbox:
    """A `Channel` that a task waits at."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._events: list[LocalEvent] = []
        self._failure: str | None = None
        self._arrived = asyncio.Event()

    def put(self, events: Sequence[LocalEvent]) -> None:
        self._call(self._extend, events)

    def fail(self, message: str) -> None:
        self._call(self._fail, message)

    async def take(self) -> Sequence[LocalEvent]:
        """Wait for events and return all that came. Raises EngineError when the engine is gone."""
        await self._arrived.wait()
        self._arrived.clear()
        if self._failure is not None and not self._events:
            raise EngineError(self._failure)
        found, self._events = self._events, []
        if self._failure is not None:
            self._arrived.set()
        return found

    def _extend(self, events: Sequence[LocalEvent]) -> None:
        self._events.extend(events)

    def _fail(self, message: str) -> None:
        self._failure = message

    def _call(self, function: Any, argument: Any) -> None:
        def on_loop() -> None:
            function(argument)
            self._arrived.set()

        with contextlib.suppress(RuntimeError):  # the reader's loop is closed: nobody waits
            self._loop.call_soon_threadsafe(on_loop)
