"""Find a model's files and say what they are, in milliseconds and without torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from octavo.errors import ModelError
from octavo.modelfiles.checkpoint import weight_files
from octavo.modelfiles.gguf_config import config_from_gguf
from octavo.modelfiles.gguf_parts import parts_of, without_parts
from octavo.modelfiles.gguf_reader import read_gguf
from octavo.models.registry import ARCHITECTURES, find, is_known

__all__ = ["ModelFiles", "resolve"]

_DTYPES = ("float32", "float16", "bfloat16")


class ModelFiles(msgspec.Struct, frozen=True):
    """A model that can be served, as far as its files tell."""

    kind: str  # "safetensors", "gguf" or "dummy" (config only)
    path: Path  # the folder, or the .gguf file; of one in parts any
    weights: tuple[Path, ...]  # files that hold tensors; empty for "dummy"
    config: dict[str, Any]  # config.json, or what Transformers' would be for a GGUF file
    architecture: str
    context_len: int  # tokens
    vocab_size: int
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    dtype: str  # of the weights: "float32", "float16" or "bfloat16"


def resolve(
    model: str,
    load_format: str = "auto",
    overrides: Mapping[str, Any] | None = None,
    trust_remote_code: bool = False,
) -> ModelFiles:
    """Return what `model` is: a folder with config.json and safetensors, a .gguf file, or a folder with one .gguf file.

    With `load_format` "dummy" the weights may be absent. `overrides` replace keys of the config. Raises ModelError,
    which says what to do, for anything that cannot be served.
    """
    path = Path(model).expanduser()
    changes = dict(overrides or {})
    if not path.exists():
        raise ModelError(f"the model path {model!r} does not exist. Give a model folder or a .gguf file.")
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelError(f"{path} is a file but no .gguf. Give the folder that has config.json, or a .gguf file.")
        return _from_gguf(path, changes)
    if not (path / "config.json").is_file():
        return _from_gguf(_only_gguf(path), changes)
    return _from_folder(path, load_format == "dummy", changes, trust_remote_code)


def _only_gguf(folder: Path) -> Path:
    found = without_parts(folder.glob("*.gguf"))
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(file.name for file in found)
        raise ModelError(f"{folder} has {len(found)} .gguf files ({names}). Give the path of one of them.")
    raise ModelError(f"{folder} has no config.json and no .gguf file. Give a model's folder, or download config.json.")


def _from_gguf(path: Path, overrides: dict[str, Any]) -> ModelFiles:
    config = _changed(config_from_gguf(read_gguf(path)), overrides)
    return _files("gguf", path, parts_of(path), config)


def _from_folder(folder: Path, dummy: bool, overrides: dict[str, Any], trust_remote_code: bool) -> ModelFiles:
    config = _changed(_text_config(_read_config(folder / "config.json")), overrides)
    _refuse_quantised(config)
    architectures = config.get("architectures") or []
    if not architectures:
        raise ModelError(f"{folder / 'config.json'} has no 'architectures'. Download config.json again.")
    if not is_known(architectures[0]) and config.get("auto_map"):
        raise ModelError(_own_code(folder, architectures[0], trust_remote_code))
    find(architectures[0])  # before the weights: the better message
    if dummy:
        return _files("dummy", folder, (), config)
    return _files("safetensors", folder, weight_files(folder), config)


def _text_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return the config of the text model, with what only the whole says: the part wins over the whole."""
    part = config.get("text_config")
    if not isinstance(part, dict):
        return config
    whole = {key: value for key, value in config.items() if not key.endswith("_config") or key == "quantization_config"}
    # Whether a part's head is tied is the part's matter, even where it leaves that to its family's default.
    whole.pop("tie_word_embeddings", None)
    return whole | part | {"architectures": config.get("architectures")}


def _changed(config: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """Return the config with what a user overrides. Rotation has two spellings: the user's replaces the other."""
    config = dict(config)
    if "rope_parameters" in overrides:
        for old in ("rope_scaling", "rope_theta"):
            config.pop(old, None)
    elif "rope_scaling" in overrides or "rope_theta" in overrides:
        new = config.pop("rope_parameters", None) or {}
        config |= {"rope_theta": new["rope_theta"]} if new.get("rope_theta") is not None else {}
        config |= {} if "rope_scaling" in overrides else {"rope_scaling": _without_theta(new)}
    return config | overrides


def _without_theta(params: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in params.items() if key != "rope_theta"}


def _own_code(folder: Path, architecture: str, trusted: bool) -> str:
    known = ", ".join(sorted(ARCHITECTURES))
    advice = (
        "--trust-remote-code does not change that" if trusted else "there is no --trust-remote-code way around that"
    )
    return (
        f"{folder} brings its own code for the architecture {architecture!r} (auto_map in config.json). octavo runs "
        f"models with its own code only, never a repository's: {advice}. Known: {known}. Choose one of these."
    )


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is no JSON: {error}. Download it again.") from error
    if not isinstance(config, dict):
        raise ModelError(f"{path} holds no JSON object. Download it again.")
    return config


def _refuse_quantised(config: dict[str, Any]) -> None:
    quantization = config.get("quantization_config") or config.get("compression_config")
    if quantization:
        method = quantization.get("quant_method", "unnamed") if isinstance(quantization, dict) else quantization
        raise ModelError(
            f"quantization_config with the method {method!r} is not supported. Use the model's unquantised weights, "
            "or a GGUF file."
        )


def _files(kind: str, path: Path, weights: tuple[Path, ...], config: dict[str, Any]) -> ModelFiles:
    architecture = config["architectures"][0]
    parsed = find(architecture).parse(config)
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "float32").removeprefix("torch.")
    if dtype not in _DTYPES:
        raise ModelError(f"config.json: the dtype {dtype!r} is not supported; known: {', '.join(_DTYPES)}.")
    eos, bos = config.get("eos_token_id"), config.get("bos_token_id")
    return ModelFiles(
        kind=kind,
        path=path,
        weights=weights,
        config=config,
        architecture=architecture,
        context_len=parsed.max_position_embeddings,
        vocab_size=parsed.vocab_size,
        bos_token_id=bos if isinstance(bos, int) else None,
        eos_token_ids=_end_tokens(path, eos),
        dtype=dtype,
    )


def _end_tokens(path: Path, from_config: int | list[int] | None) -> tuple[int, ...]:
    """generation_config.json has the last word, as in Transformers: chat models list their turn ends there.

    Without a word there or in config.json, the tokenizer's end of sequence counts.
    """
    value: Any = None
    generation = path / "generation_config.json"
    if path.is_dir() and generation.is_file():
        value = _read_config(generation).get("eos_token_id")
    for other in (from_config, _tokenizer_end(path)):
        value = other if value is None else value
    if value is None:
        return ()
    return tuple(int(token) for token in value) if isinstance(value, list) else (int(value),)


def _tokenizer_end(path: Path) -> int | None:
    """Return the id of the tokenizer's end-of-sequence token; None where its files name none."""
    config, tokenizer = path / "tokenizer_config.json", path / "tokenizer.json"
    if not (path.is_dir() and config.is_file() and tokenizer.is_file()):
        return None
    token = _read_config(config).get("eos_token")
    token = token.get("content") if isinstance(token, dict) else token
    if not token:
        return None
    whole = _read_config(tokenizer)
    for entry in whole.get("added_tokens") or ():
        if entry["content"] == token:
            return int(entry["id"])
    vocabulary = (whole.get("model") or {}).get("vocab")
    return vocabulary.get(token) if isinstance(vocabulary, dict) else None
