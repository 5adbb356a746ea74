"""One log for all processes: `HH:MM:SS.mmm LEVEL process message` on stderr."""

from __future__ import annotations

import logging
import sys
import time

__all__ = ["LEVELS", "setup"]

LEVELS = ("debug", "info", "warning", "error")


class _Format(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        head = f"{clock}.{int(record.msecs):03d} {record.levelname:<7} {self._process:<9} "
        return "\n".join(head + line for line in text.splitlines() or [""])


def setup(process: str, level: str) -> None:
    """Send this process's log records to stderr, each line with the clock, the level and the process name."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Format(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("octavo").setLevel(level.upper())
