from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from gguf import GGUFReader

from octavo.errors import ModelError
from octavo.modelfiles import smollm2
from octavo.modelfiles.gguf_reader import GGML_TYPES, read_gguf
from tests.unit.modelfiles.gguf_writer import TINY, write_gguf

if TYPE_CHECKING:
    from pathlib import Path


def test_metadata_and_tensors_are_what_the_gguf_package_reads(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    metadata = TINY | {"a.words": ["x", "é", ""], "a.numbers": [1, -2, 3], "a.flag": True, "a.text": "ü" * 300}
    # Whole numbers of blocks of any bytes: what they mean is the dequantiser's affair.
    blocks = {
        name: (rng.integers(0, 256, (6, 512 // block * size), dtype=np.uint8), name)
        for name, block, size in GGML_TYPES.values()
    }
    path = write_gguf(tmp_path / "m.gguf", metadata, blocks)
    ours, theirs = read_gguf(path), GGUFReader(path)
    for key, field in theirs.fields.items():
        if not key.startswith("GGUF."):
            assert ours.metadata[key] == field.contents(), key
    assert len(ours.tensors) == len(theirs.tensors) == len(GGML_TYPES)
    for tensor in theirs.tensors:
        mine = ours.tensors[tensor.name]
        assert mine.shape == (6, 512)
        assert mine.type == tensor.tensor_type.name
        assert mine.data.tobytes() == tensor.data.tobytes()


def test_the_demo_model_is_read_in_well_under_a_second() -> None:
    path = smollm2.find()
    if path is None:
        pytest.skip("SmolLM2 is not here: run python -m octavo.modelfiles.smollm2")
    started = time.process_time()
    file = read_gguf(path)
    assert time.process_time() - started < 1.0
    assert len(file.metadata["tokenizer.ggml.tokens"]) == 49152
    assert len(file.tensors) == 272


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", TINY, {"t": (np.ones((64, 64), dtype=np.float32), "F32")})
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(ModelError, match=r"truncated: 't' ends at byte \d+, the file at \d+"):
        read_gguf(path)
    path.write_bytes(whole[:100])
    with pytest.raises(ModelError, match="damaged"):
        read_gguf(path)


@pytest.mark.parametrize("content", [b"", b"GGU", b"PK\x03\x04" + bytes(100)])
def test_a_file_that_is_not_gguf_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"not a GGUF file|cannot be read"):
        read_gguf(path)


def test_an_unsupported_quantisation_is_named(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", TINY, {"w": (np.zeros((4, 292), dtype=np.uint8), "Q8_K")})
    with pytest.raises(ModelError, match=r"quantisation Q8_K \(tensor 'w'\).*supported: F32, F16, BF16, Q4_0"):
        read_gguf(path)
