"""Where the defaults of sampling come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from octavo.modelfiles.files import ModelFiles

__all__ = ["GenerationSource", "generation_config"]

_NAME = "generation_config.json"


class GenerationSource:
    """What `--generation-config` and `--override-generation-config` say."""

    def __init__(self, source: str = "auto", override: str = "") -> None:
        """`source`: "auto": the model's own file; "vllm": no defaults but the model's end tokens; else a folder.

        `override`: a JSON object, whose values win; empty: none.
        """
        self.source = source
        self.override: dict[str, Any] = json.loads(override) if override else {}


def generation_config(files: ModelFiles, source: GenerationSource) -> dict[str, Any]:
    """Return the generation config to serve with: where none is found, the ids of the model's config alone.

    Raises ConfigError for a folder without one, ModelError for a file that is no JSON object.
    """
    config = _of_model(files) if source.source in ("auto", "vllm") else _of_folder(source.source)
    if source.source == "vllm":
        config = {name: value for name, value in config.items() if name.endswith("_token_id")}
    return config | source.override


def _of_model(files: ModelFiles) -> dict[str, Any]:
    """Return the model's own file, with the end tokens that hold for it whichever file has them."""
    eos = list(files.eos_token_ids)
    ours = {
        "bos_token_id": files.bos_token_id,
        "eos_token_id": eos[0] if len(eos) == 1 else eos or None,
        "pad_token_id": files.config.get("pad_token_id"),
    }
    path = files.path / _NAME
    if not (files.path.is_dir() and path.is_file()):
        return ours
    given = {key: value for key, value in _read(path).items() if value is not None}
    return ours | given | {"eos_token_id": ours["eos_token_id"]}


def _of_folder(source: str) -> dict[str, Any]:
    path = Path(source) / _NAME
    if not path.is_file():
        raise ConfigError(
            f"--generation-config {source}: there is no {path}; give auto, vllm or a folder with a {_NAME}",
            "generation_config",
        )
    return _read(path)


def _read(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_bytes())
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ModelError(f"{path} must hold a JSON object")
    return config
