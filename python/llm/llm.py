"""Batches of prompts in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from octavo.errors import RequestError
from octavo.llm.batch import run_batch
from octavo.llm.model import LoadedModel, library_config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike
    from typing import Self

    from octavo.llm.model import Message, Prompt
    from octavo.llm.outputs import RequestOutput
    from octavo.llm.request import Request
    from octavo.llm.sampling import SamplingParams
    from octavo.wire.frontend import EngineInfo

__all__ = ["LLM"]

T = TypeVar("T")


class LLM:
    """A model in this program: the engine core on a thread, the workers as processes, no HTTP.

    Works in scripts, notebooks and under a running event loop; its calls block. Close it, or use it in `with`; the end
    of the program closes it too. Calls may come from several threads.
    """

    def __init__(
        self,
        model: str | PathLike[str],
        *,
        dtype: str = "auto",
        max_model_len: int | None = None,
        kv_cache_memory_bytes: int | str | None = None,
        tensor_parallel_size: int = 1,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        """Load a model and wait until it can work.

        model: as for `octavo serve`. settings: the flags of `octavo serve` that concern the model, the engine and the
        log, with underscores. Raises ConfigError, ModelError, EngineError: what was wrong and what to do.
        """
        named = {
            "dtype": dtype,
            "max_model_len": max_model_len,
            "kv_cache_memory_bytes": kv_cache_memory_bytes,
            "tensor_parallel_size": tensor_parallel_size,
            "seed": seed,
        }
        self._model = LoadedModel(library_config(str(model), named | settings))
        try:
            self._info: EngineInfo = self._model.engine.ready.result()
        except BaseException:
            self._model.close()
            raise

    @property
    def max_model_len(self) -> int:
        """The most tokens of a prompt and its output together."""
        return self._info.max_model_len

    @property
    def vocab_size(self) -> int:
        """Token ids go from 0 to one below this."""
        return self._info.vocab_size

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Continue prompts; return their outputs in the same order.

        A prompt is text, {"prompt": text}, {"prompt_token_ids": ids} or a list of ids. sampling_params: one for all or
        one for each; None: as the model's generation_config.json says, 16 tokens. use_tqdm: show a progress bar.

        Raises RequestError, before anything has run, for a prompt that cannot be used: one that is too long, too.
        A request that the engine fails on later has finish_reason "error", and `error` says why. Raises EngineError
        when the engine has ended.
        """
        batch = _batch(prompts, lambda prompt: isinstance(prompt, int))
        info = self._info
        return self._run(
            batch, sampling_params, lambda item, params: self._model.completion(item, params, info), use_tqdm
        )

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Answer conversations; return the answers in the same order.

        messages: a list of {"role": ..., "content": ...}, or a list of such lists. chat_template_kwargs: further
        variables of the chat template. All else is as for `generate`.
        """
        template = {
            "add_generation_prompt": add_generation_prompt,
            "continue_final_message": continue_final_message,
            "chat_template_kwargs": dict(chat_template_kwargs or {}),
        }
        batch = _batch(messages, lambda message: isinstance(message, dict))
        info = self._info
        return self._run(
            batch, sampling_params, lambda item, params: self._model.chat(item, params, info, template), use_tqdm
        )

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of a text."""
        return self._model.renderer.encode(text, add_special_tokens)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of token ids, special tokens left out."""
        return self._model.renderer.decode(token_ids)

    def close(self) -> None:
        """Stop the workers. Again: nothing."""
        self._model.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(
        self,
        batch: Sequence[T],
        params: SamplingParams | Sequence[SamplingParams] | None,
        make: Callable[[T, SamplingParams | None], Request],
        progress: bool,
    ) -> list[RequestOutput]:
        each = _for_each(params, len(batch))
        requests = []
        for number, (item, mine) in enumerate(zip(batch, each, strict=True)):
            try:
                requests.append(make(item, mine))
            except RequestError as error:
                where = f"prompt {number}: " if len(batch) > 1 else ""
                raise RequestError(where + error.message, error.code, error.param) from None
        run_batch(self._model.engine, requests, progress=progress)
        return [request.output() for request in requests]


def _batch(given: Any, is_part: Callable[[Any], bool]) -> list[Any]:
    """Return the items of a batch; a single item becomes a batch of one. Parts of an item are told by `is_part`."""
    if isinstance(given, (str, dict)):
        return [given]
    items = list(given)
    return [items] if items and is_part(items[0]) else items


def _for_each(params: SamplingParams | Sequence[SamplingParams] | None, count: int) -> Sequence[SamplingParams | None]:
    if params is None or not isinstance(params, (list, tuple)):
        return [params] * count  # type: ignore[list-item]
    if len(params) != count:
        raise RequestError(
            f"{len(params)} sampling_params came with {count} prompts; give one for all, or one for each"
        )
    return params
