"""A folder of safetensors, checked by the headers of its files."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.errors import ModelError

__all__ = ["TensorInfo", "read_header", "weight_files"]

_INDEX = "model.safetensors.index.json"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_MAX_HEADER_BYTES = 100_000_000


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One entry of a safetensors header."""

    name: str
    dtype: str  # "F32", "BF16", "F16", ...
    shape: tuple[int, ...]
    begin: int  # byte in the file
    end: int


def weight_files(folder: Path) -> tuple[Path, ...]:
    """Return the safetensors files of `folder`, in the order of their names, each checked to be whole.

    Raises ModelError if there are none, if the index names files that are not there, or if one is truncated.
    """
    index = folder / _INDEX
    files = _indexed(folder, index) if index.exists() else sorted(folder.glob("*.safetensors"))
    if not files:
        raise ModelError(_no_weights(folder))
    for file in files:
        read_header(file)
    return tuple(files)


def read_header(path: Path) -> tuple[TensorInfo, ...]:
    """Return the tensors that the file's header lists.

    Raises ModelError if the file is truncated or no safetensors file.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else -1
        if not 0 < length <= min(_MAX_HEADER_BYTES, size - 8):
            raise ModelError(f"{path} is truncated or no safetensors file ({size} bytes). Download it again.")
        raw = file.read(length)
    try:
        entries: dict[str, Any] = json.loads(raw)
        entries.pop("__metadata__", None)
        base = 8 + length
        infos = tuple(
            TensorInfo(name, e["dtype"], tuple(e["shape"]), base + e["data_offsets"][0], base + e["data_offsets"][1])
            for name, e in entries.items()
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path} is damaged: its header is no safetensors header. Download it again.") from error
    end = max((info.end for info in infos), default=base)
    if end != size:
        state = "truncated" if end > size else "damaged"
        raise ModelError(f"{path} is {state}: it has {size} bytes, its header says {end}. Download it again.")
    return infos


def _indexed(folder: Path, index: Path) -> list[Path]:
    try:
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (ValueError, KeyError, AttributeError) as error:
        raise ModelError(f"{index} is damaged: no JSON with a weight_map. Download it again.") from error
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise ModelError(f"{index} names files that are not there: {', '.join(missing)}. Download them.")
    return [folder / name for name in names]


def _no_weights(folder: Path) -> str:
    pickles = sorted(file.name for file in folder.iterdir() if file.suffix in _PICKLES and file.is_file())
    if pickles:
        return (
            f"{folder} has only pickled weights ({', '.join(pickles[:4])}), which can run code when read and are not "
            "loaded. Convert them in an environment that you trust: AutoModelForCausalLM.from_pretrained(folder)"
            ".save_pretrained(new_folder), or look for a revision with safetensors."
        )
    return f"{folder} has no weights: no *.safetensors and no .gguf file. Download them, or use --load-format dummy."
