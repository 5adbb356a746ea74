"""Run the engine core's process."""

from __future__ import annotations

import sys

from octavo.engine_core.main import main

if __name__ == "__main__":
    sys.exit(main())
