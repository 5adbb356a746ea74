"""Two profiles: `ci` is deterministic; HYPOTHESIS_PROFILE=explore looks further, differently each time."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=200)
settings.register_profile("explore", deadline=None, max_examples=20000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
