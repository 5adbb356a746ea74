"""What holds for every test."""

from __future__ import annotations

import os
from pathlib import Path

# Triton reads this when it is imported, and some tests import it through other libraries: kernels run in its
# interpreter where there is no GPU. bench/gpu.sh sets 0.
os.environ.setdefault("TRITON_INTERPRET", "0" if Path("/dev/nvidiactl").exists() else "1")
