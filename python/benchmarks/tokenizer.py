"""Texts of a given number of tokens, and counts of tokens.

Where a tokenizer can be had (a folder, a tokenizer.json, a GGUF file, a name on the Hugging Face Hub) counts are exact.
Where none can, `Words` builds prompts from common words and learns from the server how many tokens a word is.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from octavo.errors import ConfigError, OctavoError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

__all__ = ["FileTokenizer", "Tokenizer", "Words", "load"]

ADJUSTMENTS = 10  # tries to reach a length; then the nearest stands


class Tokenizer(Protocol):
    """What data sets need of a tokenizer."""

    name: str
    exact: bool  # whether counts are the model's own
    special: int  # tokens that the model puts around a prompt

    def count(self, text: str) -> int:
        """Return how many tokens a text has, without the model's special ones."""

    def random(self, rng: np.random.Generator, tokens: int) -> str:
        """Return a random text of `tokens` tokens, or as near as can be."""

    def chat(self, text: str, **kwargs: Any) -> str | None:
        """Return the prompt that the chat template makes of one user message; None where there is no template."""


class FileTokenizer(Tokenizer):
    """A tokenizer.json."""

    exact = True

    def __init__(self, name: str, folder: Path, keep: object = None) -> None:
        from tokenizers import Tokenizer as Backend

        self.name = name
        self._folder = folder
        self._keep = keep  # what the folder lives as long as
        self._backend: Backend = Backend.from_file(str(folder / "tokenizer.json"))
        self.special = self._backend.num_special_tokens_to_add(False)

    def count(self, text: str) -> int:
        return len(self._backend.encode(text, add_special_tokens=False).ids)

    @cached_property
    def _plain(self) -> np.ndarray:  # [n] int64: ids that stand for whole text of their own
        special = {id for id, token in self._backend.get_added_tokens_decoder().items() if token.special}
        ids = [id for id in range(self._backend.get_vocab_size()) if id not in special]
        texts = self._backend.decode_batch([[id] for id in ids])
        return np.array([id for id, text in zip(ids, texts, strict=True) if text.strip() and "\ufffd" not in text])

    def random(self, rng: np.random.Generator, tokens: int) -> str:
        ids: list[int] = rng.choice(self._plain, tokens).tolist()
        text = self._backend.decode(ids)
        for _ in range(ADJUSTMENTS):
            ids = self._backend.encode(text, add_special_tokens=False).ids
            if len(ids) == tokens:
                break
            ids = ids[:tokens] + rng.choice(self._plain, max(tokens - len(ids), 0)).tolist()
            text = self._backend.decode(ids)
        return text

    @cached_property
    def _templates(self) -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(str(self._folder))

    def chat(self, text: str, **kwargs: Any) -> str | None:
        if not self._templates.chat_template:
            return None
        message = [{"role": "user", "content": text}]
        prompt = self._templates.apply_chat_template(message, add_generation_prompt=True, tokenize=False, **kwargs)
        return str(prompt)


_WORDS = """
time year people way day man thing woman life child world school state family student group country problem hand part
place case week company system program question work government number night point home water room mother area money
story fact month lot right study book eye job word business issue side kind head house service friend father power hour
game line end member law car city community name president team minute idea kid body back parent face level office door
health person art war history party result change morning reason research girl guy moment air teacher force education
foot boy age policy music market sense nation plan college interest death experience
""".split()  # noqa: SIM905  # 120 quoted words are no easier to read


class Words(Tokenizer):
    """Common words in random order: counts are estimates, `tokens_per_word` is learnt from the server."""

    name = "none (common words)"
    exact = False
    special = 0

    def __init__(self, tokens_per_word: float = 1.0) -> None:
        self.tokens_per_word = tokens_per_word

    def count(self, text: str) -> int:
        return max(1, round(len(text.split()) * self.tokens_per_word)) if text else 0

    def random(self, rng: np.random.Generator, tokens: int) -> str:
        words = max(1, round(tokens / self.tokens_per_word)) if tokens else 0
        return " ".join(rng.choice(_WORDS, words).tolist())

    def chat(self, text: str, **kwargs: Any) -> str | None:
        return None


def load(name: str, *, hub: bool) -> Tokenizer | None:
    """Load the tokenizer that `name` stands for: a folder, a tokenizer.json, a GGUF file, or (with `hub`) a name on
    the Hugging Face Hub.

    None where there is none of that name. Raises ConfigError where there is one that cannot be read.
    """
    path = Path(name)
    try:
        if path.suffix == ".gguf" and path.is_file():
            return _from_gguf(name)
        folder = path.parent if path.name == "tokenizer.json" else path
        if (folder / "tokenizer.json").is_file():
            return FileTokenizer(name, folder)
        return _from_hub(name) if hub and not path.exists() else None
    except OctavoError:
        raise
    except Exception as error:  # the library's own errors have no common class
        raise ConfigError(f"--tokenizer {name}: {error}", "tokenizer") from None


def _from_gguf(name: str) -> Tokenizer:
    from octavo.modelfiles import export_tokenizer, resolve

    scratch = TemporaryDirectory(prefix="octavo-tokenizer-")
    export_tokenizer(resolve(name), Path(scratch.name))
    return FileTokenizer(name, Path(scratch.name), keep=scratch)


def _from_hub(name: str) -> Tokenizer | None:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        path = Path(hf_hub_download(name, "tokenizer.json"))
    except (HFValidationError, LocalEntryNotFoundError, HfHubHTTPError, OSError):
        return None
    return FileTokenizer(name, path.parent)
