"""One model in the forms that the engines read: a Transformers folder and a GGUF file, both in bf16.

Both come from the same GGUF file of SmolLM2-135M-Instruct, dequantised once, so that all engines compute with the same
weights in the same width.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import ModelError
from octavo.modelfiles import smollm2

__all__ = ["Forms", "prepare"]


@dataclass(frozen=True, slots=True)
class Forms:
    """Where each form lies."""

    folder: Path  # config.json, safetensors, tokenizer.json
    gguf: Path  # bf16
    gguf_f16: Path  # for engines that read no bf16 GGUF


def prepare(target: Path) -> Forms:
    """Make the forms that are not there yet. Takes a minute the first time. Raises ModelError."""
    forms = Forms(target / "folder", target / "model.bf16.gguf", target / "model.f16.gguf")
    source = smollm2.find()
    if source is None:
        raise ModelError(
            "SmolLM2 is not on this machine: run `make demo` once, or set OCTAVO_SMOLLM2 to its .gguf file"
        )
    target.mkdir(parents=True, exist_ok=True)
    if not (forms.folder / "config.json").exists():
        _write_folder(source, forms.folder)
    for path, kind in ((forms.gguf, "BF16"), (forms.gguf_f16, "F16")):
        if not path.exists():
            _write_gguf(source, path, kind)
    return forms


def _write_folder(source: Path, folder: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM

    from octavo.modelfiles import export_tokenizer, resolve

    scratch = folder.with_suffix(".part")
    shutil.rmtree(scratch, ignore_errors=True)
    model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.bfloat16)
    weights = {name: value.contiguous() for name, value in model.state_dict().items() if name != "lm_head.weight"}
    del model.config.quantization_config  # dequantised: plain bf16 from here on
    model.config.save_pretrained(scratch)
    model.generation_config.save_pretrained(scratch)
    save_file(weights, scratch / "model.safetensors", metadata={"format": "pt"})
    export_tokenizer(resolve(str(source)), scratch)
    scratch.rename(folder)


def _write_gguf(source: Path, path: Path, kind: str) -> None:
    """Write the same metadata with every matrix in `kind`; vectors (norms) stay fp32, as llama.cpp's converter does."""
    import gguf

    reader = gguf.GGUFReader(source)
    width = gguf.GGMLQuantizationType[kind]
    scratch = path.with_suffix(".part")
    writer = gguf.GGUFWriter(scratch, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        sub = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=sub)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{kind}"])
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(tuple(reversed(tensor.shape.tolist())))
        if values.ndim > 1:
            writer.add_tensor(tensor.name, gguf.quantize(values, width), raw_dtype=width)
        else:
            writer.add_tensor(tensor.name, values.astype("float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    scratch.rename(path)
