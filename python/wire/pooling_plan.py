"""How a server pools: worked out once from flags and model files, told to the frontend, the core and the workers."""

from __future__ import annotations

import msgspec

__all__ = ["CLASSIFY", "EMBED", "TOKEN_CLASSIFY", "TOKEN_EMBED", "PoolingPlan"]

EMBED, CLASSIFY = "embed", "classify"
TOKEN_EMBED, TOKEN_CLASSIFY = "token_embed", "token_classify"


class PoolingPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a model that pools is asked for, and how its vectors are made."""

    convert: str  # "embed", "classify" or "reward"
    encoder: bool  # rows stand whole in a step: nothing is cached, and tokens see those that follow
    tasks: tuple[str, ...]  # those that it does, the default of /pooling first
    seq_pooling: str  # "CLS", "LAST" or "MEAN": one vector of a row's hidden states
    tok_pooling: str = "ALL"  # or "STEP": only tokens with the id `step_tag_id`
    use_activation: bool = True  # embeddings of length 1, probabilities; unless a request says otherwise
    activation: str = "softmax"  # of labels: "identity", "sigmoid" or "softmax"
    logit_mean: float = 0.0  # subtracted from the values of labels,
    logit_sigma: float = 1.0  # which are divided by this, before the activation
    step_tag_id: int | None = None
    returned_token_ids: tuple[int, ...] = ()  # columns of token_classify that are given; empty: all
    embedding_size: int = 0  # numbers of an embedding
    dimensions: int | None = None  # numbers that are given where a request does not say; None: all
    matryoshka: bool = False  # requests may ask for fewer
    matryoshka_dimensions: tuple[int, ...] = ()  # of these sizes; empty: any
    labels: tuple[str, ...] = ()  # of a classifier
    max_seq_len: int | None = None  # tokens, as sentence-transformers was told; None: the model's context
    lower_case: bool = False  # texts are made lower case first
    pairs: bool = False  # the tokenizer joins two texts; otherwise they are one text
    prompts: dict[str, str] = {}  # what stands in front of texts of a kind ("query", "document")

    @property
    def pools_last(self) -> bool:
        """Whether one vector needs nothing but the last token's hidden state."""
        return self.seq_pooling == "LAST"
