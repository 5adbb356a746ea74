"""A model that gives vectors: a decoder without its head, or an encoder; with a classifier for labels."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from octavo.layers.classifier import Classifier
from octavo.models.base import Model, build_model
from octavo.models.registry import find
from octavo.wire.pooling_plan import EMBED

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.layers.base import Build, WeightPart
    from octavo.layers.batch import ForwardBatch
    from octavo.wire.pooling_plan import PoolingPlan
    from octavo.wire.worker import KvSpec

__all__ = ["PoolingModel", "build_pooling_model"]


class PoolingModel(Model):
    """Hidden states of the backbone, and what the classifier says of some; see workers/pooling."""

    def __init__(self, backbone: Model, classifier: Classifier | None) -> None:
        self.backbone = backbone
        self.classifier = classifier
        self.vocab_size = backbone.vocab_size

    def forward(self, ids: Tensor, batch: ForwardBatch) -> Tensor:  # [T] int32 -> [W, hidden] dtype
        return self.backbone.forward(ids, batch)

    def logits(self, hidden: Tensor) -> Tensor:  # [R, hidden] dtype -> never
        raise TypeError("a model that pools has no logits")

    def kv_specs(self) -> tuple[KvSpec, ...]:
        return self.backbone.kv_specs()

    def kv_heads(self, layer: int) -> int:
        return self.backbone.kv_heads(layer)

    def checkpoint(self) -> dict[str, WeightPart]:
        parts = self.backbone.checkpoint()
        return parts if self.classifier is None else parts | self.classifier.checkpoint()

    def canonical(self, name: str) -> str:
        return self.backbone.canonical(name)

    def is_ignored(self, name: str) -> bool:
        return self.backbone.is_ignored(name) or any(re.fullmatch(one, name) for one in self.backbone.headless)


def build_pooling_model(architecture: str, config: dict[str, Any], build: Build, plan: PoolingPlan) -> PoolingModel:
    """Return the model for a config.json, its weights not yet loaded.

    Raises ModelError for an architecture that is not known and for a config that it cannot be built from.
    """
    backbone = build_model(architecture, config, dataclasses.replace(build, generates=False))
    if plan.convert == EMBED:
        return PoolingModel(backbone, None)
    hidden = find(architecture).parse(config).hidden_size
    labels = max(1, len(plan.labels))
    task = "classify" if "classify" in plan.tasks else "token_classify"
    return PoolingModel(backbone, Classifier(hidden, labels, backbone.head_spec(task), build))
