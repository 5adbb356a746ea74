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

TYPES = [name for name, _, _ in GGML_TYPES.values()]


def test_metadata_and_tensors_are_what_the_gguf_package_reads(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tensors = {f"t.{kind}": (rng.standard_normal((6, 64), dtype=np.float32), kind) for kind in TYPES}
    metadata = TINY | {"a.words": ["x", "é", ""], "a.numbers": [1, -2, 3], "a.flag": True, "a.text": "ü" * 300}
    path = write_gguf(tmp_path / "m.gguf", metadata, tensors)
    ours, theirs = read_gguf(path), GGUFReader(path)
    for key, field in theirs.fields.items():
        if not key.startswith("GGUF."):
            assert ours.metadata[key] == field.contents(), key
    assert len(ours.tensors) == len(theirs.tensors) == len(TYPES)
    for tensor in theirs.tensors:
        mine = ours.tensors[tensor.name]
        assert mine.shape == (6, 64)
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
    path = write_gguf(tmp_path / "m.gguf", TINY, {"w": (np.ones((4, 64), dtype=np.float32), "Q4_0")})
    with pytest.raises(ModelError, match=r"quantisation Q4_0 \(tensor 'w'\).*supported: F32, F16, Q4_1, Q8_0, BF16"):
        read_gguf(path)
