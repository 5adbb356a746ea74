"""Small GGUF files for tests, written by the `gguf` package, so that our reader meets files that are not ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["TINY", "write_gguf"]

#: Metadata of a tiny Llama: 2 layers, hidden 64, 4 query and 2 key-value heads of 16, 96 tokens.
TINY: dict[str, Any] = {
    "llama.block_count": 2,
    "llama.context_length": 128,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.dimension_count": 16,
    "llama.rope.freq_base": 10000.0,
}


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_array(key, value)


def write_gguf(
    path: Path,
    metadata: dict[str, Any],
    tensors: dict[str, tuple[np.ndarray[Any, Any], str]],
    arch: str = "llama",
    tensors_in_part: int = 0,
) -> Path:
    """Write `tensors` (fp32 arrays, or blocks as uint8, and the GGUF type of each) and `metadata` to `path`.

    With `tensors_in_part` into files of so many tensors, named after `path`.
    """
    writer = GGUFWriter(path, arch, split_max_tensors=tensors_in_part)
    for key, value in metadata.items():
        _add(writer, key, value)
    for name, (array, kind) in tensors.items():
        quantisation = GGMLQuantizationType[kind]
        blocks = array.dtype == np.uint8
        data = array if blocks else quantize(np.ascontiguousarray(array, dtype=np.float32), quantisation)
        writer.add_tensor(name, data, raw_dtype=quantisation)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
