"""From what a user calls a model to a path on this machine."""

from __future__ import annotations

import logging
from pathlib import Path

from octavo.errors import ModelError
from octavo.modelfiles import hub, smollm2

__all__ = ["DEMO", "locate"]

_log = logging.getLogger(__name__)

#: The demo model, which needs no Hub.
DEMO = "smollm2"


def locate(model: str, revision: str | None = None) -> Path:
    """Return the path of `model`: a folder, a .gguf file, "smollm2", or a name on the Hub, which is fetched if need be.

    A path wins over a name. `revision` is of a model on the Hub. Raises ModelError, which says what to do, for
    anything else, and for what cannot be fetched.
    """
    path = Path(model).expanduser()
    if path.exists():
        return path
    if model == DEMO:
        return smollm2.fetch(lambda line: _log.info("%s", line))
    if hub.is_hub_name(model):
        return hub.fetch(model, revision)
    raise ModelError(
        f"the model path {model!r} does not exist. Give a folder with config.json and *.safetensors, a .gguf file, a "
        f"name on the Hugging Face Hub (ORG/NAME), or {DEMO} for a small demo model."
    )
