"""A loaded model: its engine, and prompts made the way the server makes them."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import logging
import operator
import os
import weakref
from typing import TYPE_CHECKING, Any, cast

import msgspec
import octavo_native

from octavo import __version__
from octavo.config import build, library_settings
from octavo.engine_settings import engine_config, model_files, tokenizer_source
from octavo.errors import ConfigError, ModelError, RequestError
from octavo.llm.engine import EngineThread
from octavo.llm.request import Request
from octavo.llm.sampling import body_fields, chat_fields
from octavo.modelfiles import export_tokenizer
from octavo.modelfiles.generation import GenerationSource
from octavo.runfolder import run_folder, writing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from octavo.config import ServeConfig
    from octavo.llm.sampling import SamplingParams
    from octavo.wire.frontend import EngineInfo

    Prompt = str | Sequence[int] | Mapping[str, Any]
    Message = Mapping[str, Any]

__all__ = ["LoadedModel", "library_config"]

_log = logging.getLogger("octavo.llm")


def library_config(model: str, given: Mapping[str, Any]) -> ServeConfig:
    """Build the configuration from keyword arguments, by the definition of the flags of `octavo serve`.

    None stands for the default. Raises ConfigError for a name that there is not, a value out of range, and for what
    only a server has.
    """
    known = [s.name for s in library_settings() if s.name not in ("model", "served_model_name")]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise ConfigError(f"LLM has no setting {name!r}; {hint}", name)
    words = {name: _words(value) for name, value in given.items() if value is not None}
    return build({"log_level": "warning", "model": str(model), **words})


def _words(value: Any) -> str | list[str]:
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    return [str(one) for one in value] if isinstance(value, list | tuple) else str(value)


class LoadedModel:
    """Owns the engine and the run folder; `close` ends both. Methods may be called from any thread."""

    def __init__(self, config: ServeConfig) -> None:
        """Start to load; `engine.ready` says when requests can be made.

        Raises ConfigError, ModelError for settings and files that cannot work.
        """
        if octavo_native.__version__ != __version__:
            raise ConfigError(
                f"octavo {__version__} cannot work with octavo-native {octavo_native.__version__}: run "
                f"`pip install octavo-native=={__version__}`"
            )
        files = model_files(config)
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(run_folder())
            generation = GenerationSource(config.generation_config, config.override_generation_config)
            with writing(folder):
                export_tokenizer(
                    files, folder / "tokenizer", tokenizer_source(config), config.chat_template, generation
                )
            try:
                self.renderer = octavo_native.Renderer(folder / "tokenizer", config.seed, config.max_logprobs)
            except ValueError as error:
                raise ModelError(str(error)) from None
            for line in self.renderer.warnings:
                _log.warning("%s", line)
            self.engine = EngineThread(engine_config(config, files, folder))
            stack.callback(self.engine.close)
            # Also at the end of the program, and when nobody holds this any more.
            self._finalizer = weakref.finalize(self, _close, os.getpid(), stack.pop_all())
        self._ids = itertools.count(1)

    def close(self) -> None:
        """Stop the workers and remove the run folder. Again: nothing."""
        self._finalizer()

    def completion(self, prompt: Prompt, params: SamplingParams | None, info: EngineInfo) -> Request:
        """Make a request of a prompt: text, token ids, {"prompt": text} or {"prompt_token_ids": ids}.

        Raises RequestError.
        """
        given = _prompt(prompt)
        body = _json({"prompt": given, **body_fields(params)})
        text = given if isinstance(given, str) else None
        return self._request("cmpl", text, lambda: self.renderer.completion(body, info.max_model_len, info.vocab_size))

    def chat(
        self,
        messages: Sequence[Message],
        params: SamplingParams | None,
        info: EngineInfo,
        template: Mapping[str, Any],
    ) -> Request:
        """Make a request of a conversation; `template` holds further fields of the body. Raises RequestError."""
        body = _json({"messages": list(messages), **template, **chat_fields(params)})

        def prepare() -> octavo_native.Prepared:
            return self.renderer.chat(body, info.max_model_len, info.vocab_size)

        request = self._request("chatcmpl", None, prepare)
        request.prompt = self.renderer.chat_text(body)
        return request

    def _request(self, kind: str, text: str | None, prepare: Any) -> Request:
        try:
            prepared = prepare()
        except octavo_native.RenderError as error:
            message, code, param = error.args
            raise RequestError(message, code, param) from None
        ids = [next(self._ids) for _ in range(prepared.n)]
        return Request(ids, f"{kind}-{ids[0]}", text, prepared, self.renderer.token_texts)


def _close(owner: int, stack: contextlib.ExitStack) -> None:
    """Close in the process that opened: one that was forked from it must leave its parent's engine alone."""
    if os.getpid() == owner:
        stack.close()


def _prompt(prompt: Prompt) -> str | list[int]:
    """Return the text or the token ids that a prompt is."""
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, dict):
        for name in ("prompt_token_ids", "prompt"):
            if name in prompt:
                return _prompt(prompt[name])
        raise RequestError(f"a prompt that is a dict has 'prompt' or 'prompt_token_ids'; got {sorted(prompt)}")
    try:
        return [operator.index(token) for token in cast("Sequence[int]", prompt)]
    except TypeError:
        raise RequestError(
            "a prompt is a str, a list of token ids, or a dict with 'prompt' or 'prompt_token_ids'; "
            f"got {prompt!r:.100}"
        ) from None


def _json(body: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except (TypeError, UnicodeEncodeError) as error:
        raise RequestError(
            f"prompts, messages and parameters are made of dicts, lists, strings and numbers: {error}"
        ) from None
