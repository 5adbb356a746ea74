"""The architectures that octavo can run, by the name that a config gives. Free of torch: the supervisor reads it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from octavo.errors import ModelError
from octavo.models.configs.encoder import parse_bert, parse_modernbert, parse_roberta
from octavo.models.configs.gemma import parse_gemma2, parse_gemma3
from octavo.models.configs.glm4 import parse_glm4
from octavo.models.configs.granite import parse_granite
from octavo.models.configs.llama import parse_llama
from octavo.models.configs.mistral import parse_mistral, parse_mixtral
from octavo.models.configs.olmo2 import parse_olmo2
from octavo.models.configs.phi3 import parse_phi3
from octavo.models.configs.qwen import parse_qwen2, parse_qwen3, parse_qwen3_moe
from octavo.models.configs.smollm3 import parse_smollm3
from octavo.models.configs.starcoder2 import parse_starcoder2

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ARCHITECTURES", "POOLING_ARCHITECTURES", "Architecture", "ModelConfig", "find", "is_known"]


class ModelConfig(Protocol):
    """What every architecture's config says."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def max_position_embeddings(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Architecture:
    """One model family. The model is named, not imported: its module needs torch."""

    name: str
    family: str  # for people
    model: str  # "module:class" of a Model, within octavo.models
    parse: Callable[[dict[str, Any]], ModelConfig]  # reads and checks a config.json
    gguf: str = ""  # what GGUF files call it; "": none are read
    pools: str = ""  # what it is made for: "embed", "classify" or "token_classify"; "": tokens
    encoder: bool = False  # keeps no cache, and sees the tokens that follow


#: `architectures[0]` of config.json -> how to run it.
ARCHITECTURES: Mapping[str, Architecture] = {
    entry.name: entry
    for entry in [
        Architecture("LlamaForCausalLM", "Llama 2, 3", "llama:Llama", parse_llama, "llama"),
        Architecture("MistralForCausalLM", "Mistral", "mistral:Mistral", parse_mistral, "llama"),
        Architecture("MixtralForCausalLM", "Mixtral", "mixtral:Mixtral", parse_mixtral, "llama"),
        Architecture("Qwen2ForCausalLM", "Qwen2, 2.5", "qwen2:Qwen2", parse_qwen2, "qwen2"),
        Architecture("Qwen3ForCausalLM", "Qwen3", "qwen3:Qwen3", parse_qwen3, "qwen3"),
        Architecture("Qwen3MoeForCausalLM", "Qwen3-MoE", "qwen3_moe:Qwen3Moe", parse_qwen3_moe, "qwen3moe"),
        Architecture("SmolLM3ForCausalLM", "SmolLM3", "smollm3:SmolLM3", parse_smollm3, "smollm3"),
        Architecture("Phi3ForCausalLM", "Phi-3, Phi-4-mini", "phi3:Phi3", parse_phi3, "phi3"),
        Architecture("Gemma2ForCausalLM", "Gemma 2", "gemma2:Gemma2", parse_gemma2, "gemma2"),
        Architecture("Gemma3ForCausalLM", "Gemma 3", "gemma3:Gemma3", parse_gemma3, "gemma3"),
        Architecture("Gemma3ForConditionalGeneration", "Gemma 3, text only", "gemma3:Gemma3", parse_gemma3),
        Architecture("Olmo2ForCausalLM", "OLMo 2", "olmo2:Olmo2", parse_olmo2, "olmo2"),
        Architecture("GraniteForCausalLM", "Granite 3", "granite:Granite", parse_granite, "granite"),
        Architecture("Glm4ForCausalLM", "GLM-4", "glm4:Glm4", parse_glm4, "glm4"),
        Architecture("Starcoder2ForCausalLM", "Starcoder2", "starcoder2:Starcoder2", parse_starcoder2, "starcoder2"),
    ]
}


#: Decoders of which Transformers has a class with a head for labels.
_CLASSIFIERS = (
    "Llama", "Mistral", "Mixtral", "Qwen2", "Qwen3", "Qwen3Moe", "SmolLM3", "Phi3", "Gemma2", "Glm4", "Starcoder2",
)  # fmt: skip


def _of_decoder(stem: str) -> list[Architecture]:
    """Return the architectures that pool what a decoder computes."""
    made = ARCHITECTURES[f"{stem}ForCausalLM"]
    return [
        replace(made, name=f"{stem}Model", gguf="", pools="embed"),
        replace(made, name=f"{stem}ForSequenceClassification", gguf="", pools="classify"),
    ]


def _of_encoder(
    stem: str, family: str, model: str, parse: Callable[[dict[str, Any]], ModelConfig]
) -> list[Architecture]:
    """Return the architectures of an encoder."""
    kinds = {
        "Model": "embed",
        "ForMaskedLM": "embed",
        "ForSequenceClassification": "classify",
        "ForTokenClassification": "token_classify",
    }
    return [
        Architecture(stem + suffix, family, model, parse, pools=pools, encoder=True) for suffix, pools in kinds.items()
    ]


#: Likewise, of models that give vectors. Those of ARCHITECTURES do too, with --convert.
POOLING_ARCHITECTURES: Mapping[str, Architecture] = {
    entry.name: entry
    for entry in [
        *_of_encoder("Bert", "BERT", "bert:Bert", parse_bert),
        *_of_encoder("Roberta", "RoBERTa", "bert:Roberta", parse_roberta),
        *_of_encoder("XLMRoberta", "XLM-R", "bert:Roberta", parse_roberta),
        *_of_encoder("ModernBert", "ModernBERT", "modernbert:ModernBert", parse_modernbert),
        *(entry for stem in _CLASSIFIERS for entry in _of_decoder(stem)),
    ]
}


def is_known(name: str) -> bool:
    """Whether octavo can run the architecture called `name`."""
    return name in ARCHITECTURES or name in POOLING_ARCHITECTURES


def find(name: str) -> Architecture:
    """Return the architecture called `name`.

    Raises ModelError, which lists the known names, for any other.
    """
    found = ARCHITECTURES.get(name) or POOLING_ARCHITECTURES.get(name)
    if found is None:
        known, pooling = ", ".join(sorted(ARCHITECTURES)), ", ".join(sorted(POOLING_ARCHITECTURES))
        raise ModelError(
            f"the architecture {name!r} is not supported; known: {known}; for vectors and labels: {pooling}. Choose a "
            "model of one of these."
        )
    return found
