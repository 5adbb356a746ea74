from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from octavo.errors import ModelError
from octavo.modelfiles import export_tokenizer, resolve
from octavo.modelfiles.gguf_reader import read_gguf
from tests.unit.modelfiles.gguf_writer import TINY, write_gguf

if TYPE_CHECKING:
    from pathlib import Path

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": [2, 3],
    "torch_dtype": "bfloat16",
    "rope_theta": 10000.0,
}


def folder(tmp_path: Path, weights: bool = True, **changes: Any) -> Path:
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG | changes))
    if weights:
        save_file({"a": np.ones((4, 4), dtype=np.float32)}, path / "model.safetensors")
    return path


def test_a_folder_of_safetensors(tmp_path: Path) -> None:
    files = resolve(str(folder(tmp_path)))
    assert (files.kind, files.architecture, files.dtype) == ("safetensors", "LlamaForCausalLM", "bfloat16")
    assert (files.context_len, files.vocab_size, files.bos_token_id, files.eos_token_ids) == (128, 96, 1, (2, 3))
    assert [file.name for file in files.weights] == ["model.safetensors"]


def test_the_generation_config_has_the_last_word_on_end_tokens(tmp_path: Path) -> None:
    path = folder(tmp_path)
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": 7}))
    assert resolve(str(path)).eos_token_ids == (7,)


def test_dummy_needs_no_weights(tmp_path: Path) -> None:
    path = folder(tmp_path, weights=False)
    assert resolve(str(path), load_format="dummy").kind == "dummy"
    with pytest.raises(ModelError, match="has no weights"):
        resolve(str(path))


def test_a_gguf_file_and_its_folder(tmp_path: Path) -> None:
    table = (np.ones((96, 64), dtype=np.float32), "F32")
    path = write_gguf(tmp_path / "m.gguf", TINY | {"tokenizer.ggml.eos_token_id": 2}, {"token_embd.weight": table})
    for model in (path, tmp_path):
        files = resolve(str(model))
        assert (files.kind, files.path, files.context_len, files.vocab_size) == ("gguf", path, 128, 96)
        assert files.eos_token_ids == (2,)
        assert files.config["tie_word_embeddings"] is True
    (tmp_path / "other.gguf").write_bytes(path.read_bytes())
    with pytest.raises(ModelError, match=r"2 \.gguf files \(m\.gguf, other\.gguf\)"):
        resolve(str(tmp_path))


def test_a_gguf_file_in_parts(tmp_path: Path) -> None:
    norm = (np.ones(64, dtype=np.float32), "F32")
    tensors = {"token_embd.weight": (np.ones((96, 64), dtype=np.float32), "F32"), "output_norm.weight": norm}
    write_gguf(tmp_path / "m.gguf", TINY, tensors | {"rope_freqs.weight": norm}, tensors_in_part=1)
    parts = [tmp_path / f"m-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    assert sorted(tmp_path.glob("*.gguf")) == parts
    for model in (tmp_path, *parts):
        files = resolve(str(model))
        assert (files.kind, files.context_len, files.weights) == ("gguf", 128, tuple(parts))
        assert read_gguf(files.path).tensors.keys() == {*tensors, "rope_freqs.weight"}
    parts[1].write_bytes(parts[0].read_bytes())
    with pytest.raises(ModelError, match="hold 2 tensors, and should hold 3: they belong to different files"):
        resolve(str(tmp_path))
    parts[1].unlink()
    with pytest.raises(ModelError, match=r"one of 3 parts of a GGUF file, and .* lacks m-00002-of-00003\.gguf\."):
        resolve(str(tmp_path))


def test_a_path_that_does_not_exist() -> None:
    with pytest.raises(ModelError, match=r"'/nowhere/model' does not exist\. Give a model folder"):
        resolve("/nowhere/model")


def test_a_folder_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config\.json and no \.gguf"):
        resolve(str(tmp_path))


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"1")
    with pytest.raises(ModelError, match=r"is a file but no \.gguf"):
        resolve(str(tmp_path / "x.bin"))


def test_an_unknown_architecture_names_the_known_ones(tmp_path: Path) -> None:
    path = folder(tmp_path, architectures=["WhisperForConditionalGeneration"])
    with pytest.raises(
        ModelError, match=r"'WhisperForConditionalGeneration' is not supported; known: Gemma2ForCausalLM, "
    ):
        resolve(str(path))


def test_an_unknown_gguf_architecture(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", {}, {}, arch="mamba")
    with pytest.raises(ModelError, match="GGUF architecture 'mamba' is not supported; known: llama"):
        resolve(str(path))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "weights.pt"])
def test_pickled_weights_are_refused_by_name(tmp_path: Path, name: str) -> None:
    path = folder(tmp_path, weights=False)
    (path / name).write_bytes(b"\x80\x04")
    with pytest.raises(ModelError, match=rf"only pickled weights \({name}\).*save_pretrained"):
        resolve(str(path))


@pytest.mark.parametrize("keep", [3, 20, -1])
def test_truncated_safetensors(tmp_path: Path, keep: int) -> None:
    path = folder(tmp_path)
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ModelError, match=r"model\.safetensors is truncated"):
        resolve(str(path))


def test_safetensors_with_a_broken_header(tmp_path: Path) -> None:
    path = folder(tmp_path)
    file = path / "model.safetensors"
    raw = bytearray(file.read_bytes())
    raw[10:20] = b"##########"
    file.write_bytes(raw)
    with pytest.raises(ModelError, match="damaged"):
        resolve(str(path))


def test_an_index_that_names_missing_files(tmp_path: Path) -> None:
    path = folder(tmp_path)
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors", "c": "model-3.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"not there: model-2\.safetensors, model-3\.safetensors"):
        resolve(str(path))


def test_a_quantization_config_is_named(tmp_path: Path) -> None:
    path = folder(tmp_path, quantization_config={"quant_method": "gptq", "bits": 4})
    with pytest.raises(ModelError, match="quantization_config with the method 'gptq' is not supported"):
        resolve(str(path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, "lacks 'hidden_size'"),
        ({"num_hidden_layers": "two"}, "'num_hidden_layers' is 'two'"),
        ({"num_key_value_heads": 3}, "4 is no multiple of num_key_value_heads 3"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"architectures": []}, "no 'architectures'"),
        ({"torch_dtype": "float8"}, "dtype 'float8'"),
        ({"rope_scaling": {"rope_type": "spiral", "factor": 2.0}}, "rope type 'spiral' is not supported"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope type 'yarn' lacks 'factor'"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
    ],
)
def test_a_config_that_cannot_be_served(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        resolve(str(folder(tmp_path, **changes)))


def test_a_config_that_is_no_json(tmp_path: Path) -> None:
    path = folder(tmp_path)
    (path / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config\.json is no JSON"):
        resolve(str(path))


def test_no_torch_is_imported() -> None:
    code = (
        "import sys, octavo.modelfiles, octavo.modelfiles.smollm2\n"
        "try:\n    octavo.modelfiles.resolve('/nowhere')\nexcept octavo.errors.ModelError: pass\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'gguf')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_overrides_replace_keys_of_the_config(tmp_path: Path) -> None:
    path = folder(tmp_path)
    changed = resolve(str(path), overrides={"max_position_embeddings": 77, "rope_parameters": {"rope_theta": 3.0}})
    assert changed.context_len == 77
    assert changed.config["rope_parameters"] == {"rope_theta": 3.0}
    assert "rope_theta" not in changed.config  # config.json has it: the user's spelling replaces it
    linear = resolve(str(path), overrides={"rope_scaling": {"rope_type": "linear", "factor": 2.0}}).config
    assert (linear["rope_theta"], linear["rope_scaling"]["factor"]) == (10000.0, 2.0)
    with pytest.raises(ModelError, match="'num_hidden_layers' is 'two'"):
        resolve(str(path), overrides={"num_hidden_layers": "two"})


@pytest.mark.parametrize(
    ("trusted", "advice"), [(False, "there is no --trust-remote-code way"), (True, "does not change")]
)
def test_a_model_with_code_of_its_own(tmp_path: Path, trusted: bool, advice: str) -> None:
    path = folder(tmp_path, architectures=["OddForCausalLM"], auto_map={"AutoModelForCausalLM": "odd.Odd"})
    with pytest.raises(ModelError, match=f"brings its own code for the architecture 'OddForCausalLM'.*{advice}"):
        resolve(str(path), trust_remote_code=trusted)


#: Case CF03 of the bank (../shared/cases): where a model's end tokens come from.
@pytest.mark.parametrize(
    ("generation", "config", "tokenizer", "want"),
    [
        ({"eos_token_id": [1, 106], "temperature": 0.7}, 1, None, (1, 106)),
        ({"eos_token_id": 7}, [1, 2], None, (7,)),
        ({"temperature": 0.7}, [1, 106], None, (1, 106)),
        ({"eos_token_id": None}, 5, None, (5,)),
        (None, 5, "b", (5,)),
        (None, None, "b", (1,)),
        ({"temperature": 0.7}, None, {"content": "<end>"}, (9,)),
        (None, None, None, ()),
    ],
)
def test_cf03_end_tokens(tmp_path: Path, generation: Any, config: Any, tokenizer: Any, want: tuple[int, ...]) -> None:
    path = folder(tmp_path, eos_token_id=config)
    vocabulary = {"added_tokens": [{"id": 9, "content": "<end>"}], "model": {"vocab": {"a": 0, "b": 1}}}
    (path / "tokenizer.json").write_text(json.dumps(vocabulary))
    (path / "tokenizer_config.json").write_text(json.dumps({"eos_token": tokenizer}))
    (path / "generation_config.json").unlink(missing_ok=True)
    if generation is not None:
        (path / "generation_config.json").write_text(json.dumps(generation))
    assert resolve(str(path)).eos_token_ids == want
    export_tokenizer(resolve(str(path)), tmp_path / "out")
    written = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    end = written["eos_token_id"]
    assert tuple(end if isinstance(end, list) else [] if end is None else [end]) == want
    assert written.get("temperature") == (generation or {}).get("temperature")
