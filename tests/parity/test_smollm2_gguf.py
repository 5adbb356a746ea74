"""SmolLM2 from each kind of GGUF weights that the gguf package can write, against Transformers on the same file.

By hand, with OCTAVO_PARITY=full: about half a minute each.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize, quantize

from octavo.modelfiles import smollm2
from octavo.modelfiles.gguf_reader import read_gguf
from tests.parity.asks import mixed
from tests.parity.engine import EngineSetup, serve
from tests.teacher import check_requests

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.environ.get("OCTAVO_PARITY") != "full", reason="OCTAVO_PARITY is not full"),
]


def rewrite(source: Path, target: Path, kind: str) -> Path:
    """Write a file with the metadata of `source` and its matrices as `kind`."""
    reader, writer = GGUFReader(source), GGUFWriter(target, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        inner = field.types[1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], inner)
    for tensor in reader.tensors:
        whole = dequantize(tensor.data, tensor.tensor_type)
        wanted = GGMLQuantizationType[kind if whole.ndim == 2 else "F32"]
        writer.add_tensor(tensor.name, quantize(np.ascontiguousarray(whole), wanted), raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_a_quantisation(tmp_path: Path, kind: str) -> None:
    source = smollm2.find()
    if source is None:
        pytest.skip("SmolLM2 is not here: run python -m octavo.modelfiles.smollm2")
    model = rewrite(source, tmp_path / f"smollm2-{kind}.gguf", kind)
    assert kind in {tensor.type for tensor in read_gguf(model).tensors.values()}
    _, served = serve(model, EngineSetup(num_blocks=300), mixed(49152, 6, 12, 80))
    check_requests(model, [seen.check() for seen in served])
