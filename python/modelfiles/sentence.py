"""What sentence-transformers wrote beside a model: how its hidden states become vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from octavo.errors import ModelError

__all__ = ["SentenceFiles", "read_sentence_files"]

_MODULES = "modules.json"
_PROMPTS = "config_sentence_transformers.json"
#: Names under which modules' settings of the tokenizer are found.
_LIMITS = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_camembert_config.json",
    "sentence_xlnet_config.json",
)
_POOLING = {
    "cls": "CLS",
    "mean": "MEAN",
    "lasttoken": "LAST",
    "pooling_mode_cls_token": "CLS",
    "pooling_mode_mean_tokens": "MEAN",
    "pooling_mode_lasttoken": "LAST",
}


class SentenceFiles(msgspec.Struct, frozen=True, kw_only=True):
    """What the files say; None where they say nothing."""

    pooling: str | None = None  # "CLS", "MEAN" or "LAST"
    normalise: bool | None = None
    max_seq_length: int | None = None
    lower_case: bool = False
    prompts: dict[str, str] = {}


def read_sentence_files(folder: Path) -> SentenceFiles | None:
    """Return what is said in a model's folder; None where sentence-transformers wrote nothing there.

    Raises ModelError for a module that is not supported, and for files that are damaged.
    """
    if not folder.is_dir() or not (folder / _MODULES).is_file():
        return None
    modules = _read(folder / _MODULES)
    if not isinstance(modules, list):
        raise ModelError(f"{folder / _MODULES} holds no list. Download it again.")
    pooling, normalise = None, False
    for module in modules:
        kind = str(module.get("type", "")).rpartition(".")[2]
        if kind == "Pooling":
            pooling = _pooling(folder / str(module.get("path", "")) / "config.json")
        elif kind == "Normalize":
            normalise = True
        elif kind != "Transformer":
            raise ModelError(
                f"{folder / _MODULES} names the module {kind!r}, which is not supported; known: Transformer, Pooling, "
                "Normalize. Choose another model."
            )
    limits: dict[str, Any] = next((_read(folder / name) for name in _LIMITS if (folder / name).is_file()), {})
    prompts = _read(folder / _PROMPTS).get("prompts") if (folder / _PROMPTS).is_file() else None
    return SentenceFiles(
        pooling=pooling,
        normalise=normalise,
        max_seq_length=limits.get("max_seq_length"),
        lower_case=bool(limits.get("do_lower_case")),
        prompts={str(name): str(text) for name, text in (prompts or {}).items() if text},
    )


def _pooling(path: Path) -> str:
    config = _read(path)
    mode = config.get("pooling_mode")
    chosen = [mode] if isinstance(mode, str) else list(mode or ())
    chosen += [name for name, value in config.items() if name.startswith("pooling_mode_") and value is True]
    if len(chosen) != 1 or chosen[0] not in _POOLING:
        raise ModelError(
            f"{path} asks for the pooling {', '.join(map(str, chosen)) or 'none'}, which is not supported; known: one "
            "of cls, mean, lasttoken. Choose another model, or say it with --pooler-config."
        )
    if config.get("include_prompt") is False:
        raise ModelError(f"{path} leaves prompts out of the mean (include_prompt), which is not supported.")
    return _POOLING[chosen[0]]


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}. Download it again.") from error
