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
        self.preempted = False
        self.admitted: list[Request] = []
        self.capped: list[Request] = []  # got less than the budget allowed, see sched/fairness.py
        self.steady: list[Row] = []  # of one token each, see sched/steady.py
        self._left = budget  # the steady rows not counted
        self._rows: dict[int, Row] = {}

    def __len__(self) -> int:
        return len(self._rows) + len(self.steady)

    @property
    def budget(self) -> int:
        """Tokens left to hand out."""
        return self._left - len(self.steady)

    def add(self, row: Row) -> None:
        """Choose a row. There must be budget for it, and its request must have none yet."""
        if row.tokens > self.budget or row.request.id in self._rows:
            raise ValueError(f"{row.request} does not fit into a step with {self.budget} tokens left, or is in it")
        self._left -= row.tokens
        self._rows[row.request.id] = row

    def row(self, request: Request) -> Row | None:
        """Return a request's row, unless it is a steady one."""
        return self._rows.get(request.id)

    def drop(self, request: Request) -> None:
        """Take a request's row out, if it has one, and get its tokens back."""
        row = self._rows.pop(request.id, None)
        if row is not None:
            self._left += row.tokens
        elif request.row is not None and request.row in self.steady:
            self.steady.remove(request.row)

    def ordered(self) -> list[Row]:
        """Return all rows but the steady ones, which come first, in the plan's order: decode, then the others."""
        rows = list(self._rows.values())
        decode = [row for row in rows if row.samples and row.tokens - row.drafts == 1]
        return decode + [row for row in rows if not (row.samples and row.tokens - row.drafts == 1)]
