"""The ways from messages to token ids."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import octavo_native
from transformers import PreTrainedTokenizerFast

if TYPE_CHECKING:
    from pathlib import Path

    from bench.render.conversations import Messages

__all__ = ["Engines", "request"]

#: More than any prompt has of tokens, and any vocabulary of entries.
_MOST = 1 << 24


def _body(messages: Messages) -> bytes:
    return json.dumps({"messages": messages}, ensure_ascii=False).encode()


def request(renderer: octavo_native.Renderer, body: bytes) -> bytes:
    """Return the packed ids of a chat's prompt, as int32."""
    return renderer.chat(body, _MOST, _MOST).prompt


class Engines:
    """Transformers and octavo on the files of one model."""

    def __init__(self, folder: Path) -> None:
        template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
        self._reference = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
        self._reference.chat_template = template
        self._renderer = octavo_native.Renderer(folder)

    def transformers(self, messages: Messages) -> list[int]:
        """Render and encode with Transformers."""
        text = self._reference.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return self.transformers_encode(text)

    def transformers_encode(self, text: str) -> list[int]:
        """Tokenize alone with Transformers."""
        ids: list[int] = self._reference(text, add_special_tokens=False)["input_ids"]
        return ids

    def octavo(self, messages: Messages) -> list[int]:
        """Render and encode with octavo_native."""
        return self._renderer.render_tokens(messages)

    def request(self, body: bytes) -> bytes:
        """Do what octavo's server does with a request: from its body to the prompt's ids, packed."""
        return request(self._renderer, body)

    def text(self, messages: Messages) -> str:
        """Render alone."""
        return self._renderer.chat_text(_body(messages))

    def encode(self, text: str) -> list[int]:
        """Tokenize alone."""
        return self._renderer.encode(text, False)
