"""A line that tells how far a run is. It is drawn a few times a second, whatever the load."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from octavo.benchmarks.connection import clock

if TYPE_CHECKING:
    from octavo.benchmarks.record import Record

__all__ = ["Progress"]

PERIOD_S = 0.5


class Progress:
    """Counts records and draws the line on stderr, if there is a terminal."""

    def __init__(self, *, shown: bool) -> None:
        self.done = 0
        self.failed = 0
        self.tokens = 0
        self._shown = shown

    def seen(self, record: Record) -> None:
        """Count a record."""
        self.done += 1
        self.failed += record.failure is not None
        self.tokens += record.output_tokens

    @asynccontextmanager
    async def over(self, total: int) -> AsyncIterator[None]:
        """Draw while the body runs."""
        if not self._shown:
            yield
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[more]}"))
        bar = Bar(
            *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True), auto_refresh=False
        )
        begin = clock()
        task = bar.add_task("requests", total=total, more="")

        def draw() -> None:
            rate = self.tokens / max(clock() - begin, 1e-9)
            more = f"{rate:.0f} tok/s" + (f", [red]{self.failed} failed[/]" if self.failed else "")
            bar.update(task, completed=self.done, more=more)
            bar.refresh()

        async def keep_drawing() -> None:
            while True:
                draw()
                await asyncio.sleep(PERIOD_S)

        with bar:
            drawing = asyncio.create_task(keep_drawing())
            try:
                yield
            finally:
                drawing.cancel()
                draw()
