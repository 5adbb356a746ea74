"""Put a model's tokenizer where the frontend reads it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import ConfigError
from octavo.modelfiles import hub
from octavo.modelfiles.generation import GenerationSource, generation_config
from octavo.modelfiles.gguf_reader import read_gguf
from octavo.modelfiles.gguf_tokenizer import tokenizer_config_from_gguf, tokenizer_from_gguf
from octavo.modelfiles.slow_tokenizer import convert_slow_tokenizer, has_slow_tokenizer
from octavo.modelfiles.word_tokenizer import word_tokenizer

if TYPE_CHECKING:
    from octavo.modelfiles.files import ModelFiles

__all__ = ["export_tokenizer", "read_template"]

#: Files of a model folder that the frontend reads.
_COPIED = (
    "tokenizer.json",
    "tekken.json",
    "tiktoken.model",
    "qwen.tiktoken",
    "o200k_base.tiktoken",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
)
_TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json")
_TEMPLATES = "additional_chat_templates"
#: Tokenizers, of which one is enough.
_READ = ("tokenizer.json", "tekken.json", "tiktoken.model", "qwen.tiktoken", "o200k_base.tiktoken")


def export_tokenizer(
    files: ModelFiles,
    folder: Path,
    tokenizer: str | None = "",
    chat_template: str = "",
    generation: GenerationSource | None = None,
) -> None:
    """Write the tokenizer, tokenizer_config.json, generation_config.json, config.json, chat templates into `folder`.

    Copies of the model's own files (tokenizer.json, tekken.json or a tiktoken file), made from a GGUF file's metadata,
    or a slow tokenizer as Transformers converts it; with dummy weights and no tokenizer, a word for each id.
    `tokenizer`: a folder, a tokenizer.json, a .gguf file or a name on the Hub to take instead of the model's; None:
    none is read, each id is a word, and texts of other words are refused.
    `chat_template`: a file, or the template itself. `generation`: where the defaults of sampling come from; None: from
    the model. Raises ModelError if the model has no tokenizer or one that is not supported, and ConfigError if what the
    user gave is not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    template = read_template(chat_template)
    source = _given(tokenizer) if tokenizer else files.path
    if tokenizer is None:
        _write(folder / "tokenizer.json", word_tokenizer(files.vocab_size, strict=True))
    elif source.suffix == ".gguf":
        metadata = read_gguf(source).metadata
        _write(folder / "tokenizer.json", tokenizer_from_gguf(metadata))
        _write(folder / "tokenizer_config.json", tokenizer_config_from_gguf(metadata, files.context_len))
    elif files.kind == "dummy" and not tokenizer and not _has_tokenizer(source):
        _write(folder / "tokenizer.json", word_tokenizer(files.vocab_size))
    elif source.is_file():
        shutil.copyfile(source, folder / "tokenizer.json")
    else:
        _copy(source, folder)
    _write(folder / "config.json", files.config)
    if not (folder / "tokenizer_config.json").is_file():
        _write(folder / "tokenizer_config.json", {})
    _write(folder / "generation_config.json", generation_config(files, generation or GenerationSource()))
    if template:
        for name in (*_TEMPLATE_FILES, _TEMPLATES):
            _remove(folder / name)
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")


def read_template(given: str) -> str:
    """Return the text of --chat-template: a file's, or the text itself if it has a brace in it; "" for none.

    Raises ConfigError for a file that is not there.
    """
    if not given or "{" in given:
        return given
    path = Path(given).expanduser()
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(
            f"--chat-template {given}: {reason}; give a file with a Jinja template", "chat_template"
        ) from None


def _given(tokenizer: str) -> Path:
    path = Path(tokenizer).expanduser()
    if path.exists():
        return path
    if hub.is_hub_name(tokenizer):
        return hub.fetch(tokenizer, weights=False)
    raise ConfigError(
        f"--tokenizer {tokenizer}: there is no such file or folder, and it is no name on the Hub (ORG/NAME)",
        "tokenizer",
    )


def _has_tokenizer(source: Path) -> bool:
    return any((source / name).is_file() for name in _READ) or has_slow_tokenizer(source)


def _copy(source: Path, folder: Path) -> None:
    if not any((source / name).is_file() for name in _READ):
        convert_slow_tokenizer(source, folder)
    for name in _COPIED:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    if (source / _TEMPLATES).is_dir():
        shutil.copytree(source / _TEMPLATES, folder / _TEMPLATES, dirs_exist_ok=True)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
