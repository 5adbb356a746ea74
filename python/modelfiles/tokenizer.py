"""Put a model's tokenizer where the frontend reads it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from octavo.errors import ModelError
from octavo.modelfiles.gguf_reader import read_gguf
from octavo.modelfiles.gguf_tokenizer import tokenizer_config_from_gguf, tokenizer_from_gguf

if TYPE_CHECKING:
    from pathlib import Path

    from octavo.modelfiles.files import ModelFiles

__all__ = ["export_tokenizer"]

#: Files of a model folder that the frontend reads.
_COPIED = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
)
_TEMPLATES = "additional_chat_templates"


def export_tokenizer(files: ModelFiles, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json, generation_config.json, config.json, chat templates into `folder`.

    Copies of the model's own files, or made from a GGUF file's metadata. Raises ModelError if the model has no fast
    tokenizer or its GGUF metadata describe one that is not supported.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if files.kind == "gguf":
        metadata = read_gguf(files.path).metadata
        _write(folder / "tokenizer.json", tokenizer_from_gguf(metadata))
        _write(folder / "tokenizer_config.json", tokenizer_config_from_gguf(metadata, files.context_len))
    else:
        if not (files.path / "tokenizer.json").is_file():
            raise ModelError(
                f"{files.path} has no tokenizer.json. Write one with Transformers: "
                "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)."
            )
        for name in _COPIED:
            if (files.path / name).is_file():
                shutil.copyfile(files.path / name, folder / name)
        if (files.path / _TEMPLATES).is_dir():
            shutil.copytree(files.path / _TEMPLATES, folder / _TEMPLATES, dirs_exist_ok=True)
    _write(folder / "config.json", files.config)
    if not (folder / "tokenizer_config.json").is_file():
        _write(folder / "tokenizer_config.json", {})
    if not (folder / "generation_config.json").is_file():
        _write(folder / "generation_config.json", _generation_config(files))


def _generation_config(files: ModelFiles) -> dict[str, Any]:
    eos = list(files.eos_token_ids)
    return {
        "bos_token_id": files.bos_token_id,
        "eos_token_id": eos[0] if len(eos) == 1 else eos or None,
        "pad_token_id": files.config.get("pad_token_id"),
    }


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
