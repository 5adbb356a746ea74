"""Tiny random encoders, and decoders with a head for labels, as folders that Transformers saved."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

__all__ = ["ENCODERS", "LETTERS", "Encoder", "make_encoder", "make_sentence_files", "make_word_pieces"]

#: The words of the tokenizer besides its five special tokens.
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@dataclass(frozen=True)
class Encoder:
    """How a test builds one family: Transformers' classes and what its config says besides the common sizes."""

    stem: str  # of Transformers' classes
    note: str  # what the model has, for docs/models.md
    settings: dict[str, Any] = field(default_factory=dict)


#: Positions of RoBERTa begin behind its padding, id 0 here: 129 rows are 128 positions.
_ROBERTA = {"max_position_embeddings": 129, "pad_token_id": 0, "type_vocab_size": 1}

ENCODERS: dict[str, Encoder] = {
    "bert": Encoder("Bert", "two kinds of segments", {"type_vocab_size": 2}),
    "roberta": Encoder("Roberta", "positions behind the padding's", _ROBERTA),
    "xlm_roberta": Encoder("XLMRoberta", "the tanh form of gelu", {**_ROBERTA, "hidden_act": "gelu_new"}),
    "modernbert": Encoder(
        "ModernBert",
        "a window on two layers of three, two rotations, a head with a norm",
        {"local_attention": 16, "cls_token_id": 2, "sep_token_id": 3},
    ),
}


def make_word_pieces() -> PreTrainedTokenizerFast:
    """Return a tokenizer as BERT's: lower case, pieces of words (letters and digits), pairs of texts."""
    vocabulary = {token: number for number, token in enumerate(_SPECIAL)}
    for letter in LETTERS:
        vocabulary[letter] = len(vocabulary)
        vocabulary["##" + letter] = len(vocabulary)
    tokenizer = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="[UNK]", max_input_chars_per_word=100_000))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    # What real folders carry, and a server must not follow.
    tokenizer.enable_truncation(16)
    tokenizer.enable_padding(length=16)
    names = dict(zip(("pad", "unk", "cls", "sep", "mask"), _SPECIAL, strict=True))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **{f"{name}_token": token for name, token in names.items()}
    )


def make_encoder(folder: Path, name: str, suffix: str = "Model", seed: int = 0, **overrides: Any) -> Any:
    """Save a random encoder of about 100,000 weights and a tokenizer; return Transformers' model.

    `suffix`: of the class, such as "ForSequenceClassification". `overrides` go into the config.
    """
    encoder, tokenizer = ENCODERS[name], make_word_pieces()
    settings: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": 128,
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 3,
        "initializer_range": 0.3,
        **encoder.settings,
        **overrides,
    }
    torch.manual_seed(seed)
    config = getattr(transformers, f"{encoder.stem}Config")(**settings)
    model = getattr(transformers, encoder.stem + suffix)(config).float().eval()
    with torch.no_grad():  # norms and biases that do something
        for path, weight in model.named_parameters():
            if path.endswith("bias") or "norm" in path.lower():
                weight.add_(torch.randn_like(weight) * 0.1)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def make_sentence_files(folder: Path, pooling: str = "mean", normalise: bool = True, **limits: Any) -> None:
    """Write what sentence-transformers writes beside a model."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalise else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (kind, path) in enumerate(zip(kinds, paths, strict=False))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {f"pooling_mode_{mode}": mode.startswith(pooling) for mode in ("cls_token", "mean_tokens", "lasttoken")}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 48, **modes}))
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": 64, "do_lower_case": False, **limits})
    )
