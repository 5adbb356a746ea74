"""`python -m octavo.workers`: one worker process. Only an engine core starts it."""

from __future__ import annotations

from octavo.workers.entry import main

if __name__ == "__main__":
    main()
