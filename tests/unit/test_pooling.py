"""From flags and files to how a server pools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octavo.config import build
from octavo.engine_settings import engine_config, model_files
from octavo.errors import ConfigError, ModelError
from octavo.pooling import pooling_plan
from octavo.wire.pooling_plan import PoolingPlan
from tests.encoders import make_sentence_files

_BERT = {
    "vocab_size": 30,
    "num_key_value_heads": 2,
    "hidden_size": 24,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "intermediate_size": 8,
}


def folder(path: Path, architecture: str, **config: Any) -> Path:
    """A folder with a config alone."""
    sizes = {**_BERT, "max_position_embeddings": 128, **config}
    (path / "config.json").write_text(json.dumps({"architectures": [architecture], **sizes}))
    return path


def plan(path: Path, **flags: str) -> PoolingPlan | None:
    settings = build({"model": str(path), "load_format": "dummy", **flags})
    return pooling_plan(settings, model_files(settings))


@pytest.mark.parametrize(
    ("architecture", "flags", "tasks", "pooling"),
    [
        ("LlamaForCausalLM", {}, None, ""),
        ("LlamaForCausalLM", {"convert": "none"}, None, ""),
        ("LlamaForCausalLM", {"runner": "generate"}, None, ""),
        ("LlamaForCausalLM", {"runner": "pooling"}, ("token_embed", "embed"), "LAST"),
        ("LlamaForCausalLM", {"convert": "embed"}, ("token_embed", "embed"), "LAST"),
        ("LlamaForCausalLM", {"convert": "classify"}, ("token_classify", "classify"), "LAST"),
        ("LlamaForCausalLM", {"convert": "reward"}, ("token_classify",), "LAST"),
        ("Qwen3ForSequenceClassification", {}, ("token_classify", "classify"), "LAST"),
        ("MistralModel", {}, ("token_embed", "embed"), "LAST"),
        ("BertModel", {}, ("token_embed", "embed"), "CLS"),
        ("BertForMaskedLM", {}, ("token_embed", "embed"), "CLS"),
        ("XLMRobertaForSequenceClassification", {}, ("classify",), "CLS"),
        ("XLMRobertaForSequenceClassification", {"convert": "embed"}, ("token_embed", "embed"), "CLS"),
        ("ModernBertForTokenClassification", {}, ("token_classify",), "CLS"),
        ("BertModel", {"pooler_config": '{"pooling_type": "mean"}'}, ("token_embed", "embed"), "MEAN"),
        ("BertModel", {"pooler_config": '{"seq_pooling_type": "LAST"}'}, ("token_embed", "embed"), "LAST"),
    ],
)
def test_what_a_model_gives(
    architecture: str, flags: dict[str, str], tasks: tuple[str, ...] | None, pooling: str, tmp_path: Path
) -> None:
    found = plan(folder(tmp_path, architecture), **flags)
    assert (found and found.tasks) == tasks
    assert found is None or found.seq_pooling == pooling


@pytest.mark.parametrize(
    ("architecture", "flags", "said"),
    [
        ("BertModel", {"runner": "generate"}, "BertModel gives no tokens"),
        ("BertModel", {"convert": "classify"}, "no head for labels"),
        ("LlamaForCausalLM", {"runner": "generate", "convert": "embed"}, "--convert embed is for --runner pooling"),
        ("LlamaForCausalLM", {"runner": "pooling", "convert": "none"}, "contradict"),
        ("LlamaForCausalLM", {"pooler_config": "{}"}, "--pooler-config is for models that pool"),
        ("BertModel", {"pooler_config": '{"dimensions": 25}'}, "dimensions 25 is more than the model's 24"),
        ("LlamaModel", {"convert": "reward", "pooler_config": '{"returned_token_ids": [2]}'}, "gives 2 values"),
    ],
)
def test_contradictions_are_refused(architecture: str, flags: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        plan(folder(tmp_path, architecture), **flags)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('{"pooling_type": "MAX"}', "Invalid enum value 'MAX'"),
        ('{"max_embed_len": 9}', "max_embed_len is not supported"),
        ('{"size": 9}', "unknown field `size`"),
        ('{"dimensions": 0}', "dimensions"),
        ("[]", "Expected `object`"),
        ("nothing", "must be a JSON object"),
        ('{"logit_scale": 0}', "must not be 0"),
    ],
)
def test_wrong_pooler_configs_name_the_field(given: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"--pooler-config .*{said}"):
        build({"model": "m", "pooler_config": given})


@pytest.mark.parametrize(
    ("config", "labels", "activation"),
    [
        ({}, ("LABEL_0", "LABEL_1"), "softmax"),
        ({"num_labels": 1}, ("LABEL_0",), "sigmoid"),
        ({"id2label": {"1": "no", "0": "yes"}}, ("yes", "no"), "softmax"),
        ({"problem_type": "multi_label_classification"}, ("LABEL_0", "LABEL_1"), "sigmoid"),
        ({"problem_type": "regression", "num_labels": 1}, ("LABEL_0",), "identity"),
        (
            {"num_labels": 1, "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
            ("LABEL_0",),
            "identity",
        ),
        ({"sentence_transformers": {"activation_fn": "torch.nn.Sigmoid"}}, ("LABEL_0", "LABEL_1"), "sigmoid"),
    ],
)
def test_labels(config: dict[str, Any], labels: tuple[str, ...], activation: str, tmp_path: Path) -> None:
    found = plan(folder(tmp_path, "BertForSequenceClassification", **config))
    assert found is not None and (found.labels, found.activation) == (labels, activation)


def test_damaged_labels_are_refused(tmp_path: Path) -> None:
    for labels in ({"1": "a"}, {"x": "a"}, ["a"]):
        with pytest.raises(ModelError, match="id2label"):
            plan(folder(tmp_path, "BertForSequenceClassification", id2label=labels))


def test_sentence_transformers_make_a_decoder_pool(tmp_path: Path) -> None:
    folder(tmp_path, "Qwen3ForCausalLM", matryoshka_dimensions=[8, 4])
    make_sentence_files(tmp_path, "lasttoken")
    found = plan(tmp_path)
    assert found is not None and found.seq_pooling == "LAST" and found.use_activation
    assert found.matryoshka and found.matryoshka_dimensions == (4, 8)
    assert plan(tmp_path, runner="generate") is None


def test_an_encoder_takes_texts_whole(tmp_path: Path) -> None:
    folder(tmp_path, "ModernBertModel", max_position_embeddings=8192)

    def config(**flags: str) -> Any:
        settings = build({"model": str(tmp_path), "load_format": "dummy", "device": "cpu", **flags})
        return engine_config(settings, model_files(settings), tmp_path)

    assert config().max_num_batched_tokens == 8192 and config().dtype == "float32"
    assert config(max_model_len="4096", dtype="bfloat16").max_num_batched_tokens == 4096
    with pytest.raises(ConfigError, match="--max-num-batched-tokens 100 is less than the 8192 tokens"):
        config(max_num_batched_tokens="100")
    make_sentence_files(tmp_path)
    assert config().model_context_len == 64
    assert config(max_model_len="128").max_model_len == 128
