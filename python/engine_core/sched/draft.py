"""One step while it is being put together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from octavo.engine_core.request import Request

__all__ = ["Row", "StepDraft"]


class Row(NamedTuple):
    """One request's part of a step."""

    request: Request
    slot: int
    generation: int
    tokens: int  # drafts included
    drafts: int
    samples: bool


class StepDraft:
    """The rows chosen so far, the tokens left to hand out, and whether somebody was preempted for them."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.preempted = False
        self.admitted: list[Request] = []
        self._rows: dict[int, Row] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: Row) -> None:
        """Choose a row. There must be budget for it, and its request must have none yet."""
        if row.tokens > self.budget or row.request.id in self._rows:
            raise ValueError(f"{row.request} does not fit into a step with {self.budget} tokens left, or is in it")
        self.budget -= row.tokens
        self._rows[row.request.id] = row

    def drop(self, request: Request) -> None:
        """Take a request's row out, if it has one, and get its tokens back."""
        row = self._rows.pop(request.id, None)
        if row is not None:
            self.budget += row.tokens

    def ordered(self) -> list[Row]:
        """Return the rows as they go into the plan: decode rows, which compute one known token, first."""
        rows = list(self._rows.values())
        decode = [row for row in rows if row.samples and row.tokens - row.drafts == 1]
        return decode + [row for row in rows if not (row.samples and row.tokens - row.drafts == 1)]
