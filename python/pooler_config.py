"""How vectors are made of hidden states, as a user may say it: vLLM's names."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

__all__ = ["PoolerConfig", "read_pooler_config"]

#: Names of vLLM that octavo knows and does not serve.
_REFUSED = {
    "enable_chunked_processing": "longer texts than the context are not cut in parts",
    "max_embed_len": "longer texts than the context are not cut in parts",
}


class PoolerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """--pooler-config. None: what the model's files say."""

    pooling_type: Literal["CLS", "LAST", "MEAN", "ALL", "STEP"] | None = None  # stands for one of the next two
    seq_pooling_type: Literal["CLS", "LAST", "MEAN"] | None = None
    tok_pooling_type: Literal["ALL", "STEP"] | None = None
    use_activation: bool | None = None
    normalize: bool | None = None  # older names of use_activation
    softmax: bool | None = None
    activation: bool | None = None
    dimensions: Annotated[int, msgspec.Meta(ge=1)] | None = None
    logit_mean: float | None = None
    logit_sigma: float | None = None
    logit_bias: float | None = None  # older names of logit_mean, and of 1 / logit_sigma
    logit_scale: float | None = None
    step_tag_id: Annotated[int, msgspec.Meta(ge=0)] | None = None
    returned_token_ids: tuple[int, ...] = ()

    @property
    def seq(self) -> str | None:
        """The pooling of one vector; None where nothing is said."""
        return self.seq_pooling_type or (self.pooling_type if self.pooling_type in ("CLS", "LAST", "MEAN") else None)

    @property
    def tok(self) -> str | None:
        """The pooling of a vector for each token; None where nothing is said."""
        return self.tok_pooling_type or (self.pooling_type if self.pooling_type in ("ALL", "STEP") else None)

    @property
    def activates(self) -> bool | None:
        """Whether vectors are activated; None where nothing is said."""
        said = (self.use_activation, self.normalize, self.softmax, self.activation)
        return next((value for value in said if value is not None), None)


def read_pooler_config(text: str) -> PoolerConfig:
    """Return what a JSON object says. Raises ValueError, which names the field, for anything else."""
    try:
        fields = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"must be a JSON object with vLLM's fields: {error}") from None
    if isinstance(fields, dict):
        for name, why in _REFUSED.items():
            if fields.pop(name, None):
                raise ValueError(f"{name} is not supported: {why}")
        if isinstance(kind := fields.get("pooling_type"), str):
            fields["pooling_type"] = kind.upper()
        if fields.get("logit_scale") == 0 or fields.get("logit_sigma") == 0:
            raise ValueError("logit_scale and logit_sigma must not be 0")
    try:
        return msgspec.convert(fields, PoolerConfig)
    except msgspec.ValidationError as error:
        raise ValueError(f"must be a JSON object with vLLM's fields: {error}") from None
