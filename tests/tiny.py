"""Tiny random Llama models with a tokenizer and a chat template, as folders that Transformers saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

__all__ = ["make_llama", "make_tokenizer"]

BOS, EOS = "<|start|>", "<|end|>"
TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer in which each byte is a token: 256 bytes, two specials."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {char: index for index, char in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS)
    fast.chat_template = TEMPLATE
    return fast


def make_llama(folder: Path, seed: int = 0, **overrides: Any) -> Path:
    """Save a random Llama of about 100,000 weights, its tokenizer and template; return the folder.

    Weights are large enough that logits differ clearly; `overrides` go into LlamaConfig.
    """
    tokenizer = make_tokenizer()
    settings: dict[str, Any] = {
        "vocab_size": 288,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "initializer_range": 0.4,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        **overrides,
    }
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(**settings)).float().eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
