"""Files of requests, run to files of answers: what `octavo run-batch` does.

Charter: read lines, send each to a server's route, keep what came safe from a crash, write it in the order of the
input. What a request means belongs to the server: a body goes to it as it is.
"""

from __future__ import annotations

from octavo.batch.journal import Journal
from octavo.batch.lines import URLS, BadLine, Lines, Request
from octavo.batch.results import failed, result
from octavo.batch.runner import Target, run

__all__ = ["URLS", "BadLine", "Journal", "Lines", "Request", "Target", "failed", "result", "run"]
