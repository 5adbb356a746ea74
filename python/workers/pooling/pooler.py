"""From pooled hidden states to what is answered: embeddings, or values of labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from octavo.errors import ProtocolError
from octavo.wire.pooling_plan import CLASSIFY, EMBED, TOKEN_CLASSIFY, TOKEN_EMBED
from octavo.workers.pooling.gathering import ALL, LAST

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.layers.classifier import Classifier
    from octavo.wire.frontend import Pooling
    from octavo.wire.pooling_plan import PoolingPlan

__all__ = ["Pooler"]


class Pooler:
    """Follows a plan. It owns nothing: the classifier is the model's."""

    def __init__(self, plan: PoolingPlan, classifier: Classifier | None) -> None:
        self._plan = plan
        self._classifier = classifier

    def kind(self, wanted: Pooling) -> str:
        """Return what a request needs of its hidden states: see Gathering. Raises ProtocolError for another task."""
        if wanted.task not in self._plan.tasks:
            raise ProtocolError(f"the task {wanted.task!r} is none of {', '.join(self._plan.tasks)}")
        return ALL if wanted.task in (TOKEN_EMBED, TOKEN_CLASSIFY) else self._plan.seq_pooling

    def needs_last_alone(self, wanted: Pooling) -> bool:
        """Whether no hidden state matters but that of the last token."""
        return self.kind(wanted) == LAST

    def default(self) -> str:
        """The task of rows that name none: those of steps that nobody asked for."""
        return self._plan.tasks[-1]

    def finish(self, pooled: Tensor, wanted: Pooling) -> Tensor:  # [R, hidden] float32 -> [R, width] float32
        """Return the vectors of requests that want the same."""
        activate = self._plan.use_activation if wanted.activate is None else wanted.activate
        if wanted.task in (EMBED, TOKEN_EMBED):
            if wanted.dimensions:
                pooled = pooled[:, : wanted.dimensions]
            return F.normalize(pooled, p=2.0, dim=-1) if activate else pooled
        return self._labels(pooled, activate, wanted.task)

    def steps(self, pooled: Tensor, tokens: Tensor) -> Tensor:  # [n, width] float32, [n] int32 -> [m, width] float32
        """Return the vectors of tokens that mark a step, where the plan asks for those alone."""
        plan = self._plan
        if plan.tok_pooling != "STEP" or plan.step_tag_id is None:
            return pooled
        return pooled[tokens == plan.step_tag_id]

    def _labels(self, pooled: Tensor, activate: bool, task: str) -> Tensor:  # [R, hidden] -> [R, labels] float32
        assert self._classifier is not None
        plan = self._plan
        values = (self._classifier(pooled) - plan.logit_mean) / plan.logit_sigma
        if activate and plan.activation == "softmax":
            values = torch.softmax(values, dim=-1)
        elif activate and plan.activation == "sigmoid":
            values = torch.sigmoid(values)
        if task != CLASSIFY and plan.returned_token_ids:
            values = values[:, list(plan.returned_token_ids)]
        return values
