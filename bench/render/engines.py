"""The ways from messages to token ids."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import octavo_native
from transformers import PreTrainedTokenizerFast

if TYPE_CHECKING:
    from pathlib import Path

    from bench.render.conversations import Messages

__all__ = ["Engines"]


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
        return self.encode(self.text(messages))

    def text(self, messages: Messages) -> str:
        """Render alone."""
        body = json.dumps({"messages": messages}, ensure_ascii=False).encode()
        return self._renderer.chat_text(body)

    def encode(self, text: str) -> list[int]:
        """Tokenize alone."""
        return self._renderer.encode(text, False)
