"""A bar that tells how far a batch is."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Progress"]

PERIOD_S = 0.2


class Progress:
    """Counts finished requests and tokens; draws on stderr, a few times a second at most, whatever happens."""

    def __init__(self, shown: bool) -> None:
        self.done = 0
        self.prompt_tokens = 0
        self.tokens = 0
        self._shown = shown
        self._drawn_at = 0.0

    def tick(self) -> None:
        """Draw if it is time to."""

    @contextmanager
    def over(self, total: int) -> Iterator[None]:
        """Draw while the body runs and calls `tick`."""
        if not self._shown:
            yield
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[more]}"),
        )
        console = Console(stderr=True)
        bar = Bar(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, auto_refresh=False)
        began = time.monotonic()
        task = bar.add_task("prompts", total=total, more="")

        def draw() -> None:
            seconds = max(time.monotonic() - began, 1e-9)
            more = f"in {self.prompt_tokens / seconds:.0f}, out {self.tokens / seconds:.0f} tok/s"
            bar.update(task, completed=self.done, more=more)
            bar.refresh()

        def tick() -> None:
            now = time.monotonic()
            if now - self._drawn_at >= PERIOD_S:
                self._drawn_at = now
                draw()

        self.tick = tick  # type: ignore[method-assign]
        with bar:
            try:
                yield
            finally:
                draw()
