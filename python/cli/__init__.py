"""The command line: `octavo serve | chat | complete | models | parse | bench | collect-env`."""

from __future__ import annotations

from octavo.cli.entry import main, parser

__all__ = ["main", "parser"]
