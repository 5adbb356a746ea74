"""Fill a model's weights, strictly: every tensor of the checkpoint is used, and every weight is found."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from octavo.errors import ModelError
from octavo.workers.loading.dummy import dummy_sources
from octavo.workers.loading.gguf import gguf_sources
from octavo.workers.loading.safetensors import safetensors_sources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.layers.base import TensorSource, WeightPart
    from octavo.layers.batch import Progress
    from octavo.modelfiles import ModelFiles
    from octavo.models.base import Model

__all__ = ["fill", "load_weights"]

_log = logging.getLogger(__name__)

_PROGRESS_SECONDS = 2.0


def load_weights(model: Model, files: ModelFiles, seed: int, progress: Progress, device: str = "cpu") -> None:
    """Load `files` into `model` and bring every layer into its final layout. `seed` is of dummy weights.

    Dummy weights are made on `device`; others are read on the CPU and copied to where the model has them.

    `progress.layer` counts the tensors, so that a slow load is no hang.

    Raises ModelError, which names the tensors, if any are missing, unexpected or of another shape.
    """
    parts = model.checkpoint()
    fill(model, parts, _sources(files, parts, seed, device), str(files.path), progress)
    for _, layer in model.walk():
        layer.finish()
        progress.layer += 1


def fill(
    model: Model,
    parts: dict[str, WeightPart],
    sources: Iterator[tuple[str, TensorSource]],
    where: str,
    progress: Progress,
) -> None:
    """Hand each source to the part of its name. `where` is for messages. Raises ModelError as `load_weights`."""
    missing = dict(parts)
    unexpected: list[str] = []
    shapes: list[str] = []
    said = time.monotonic()
    ignored: list[str] = []
    for given, source in sources:
        progress.layer += 1
        name = model.canonical(given)
        part = missing.pop(name, None)
        if part is None:
            (ignored if model.is_ignored(name) else unexpected).append(given)
        elif tuple(source.shape) != part.shape:
            shapes.append(f"{name} is {list(source.shape)}, not {list(part.shape)}")
        else:
            part.load(source)
        if time.monotonic() - said >= _PROGRESS_SECONDS:
            said = time.monotonic()
            _log.info("loading weights: %d of %d tensors", len(parts) - len(missing), len(parts))
    absent = [name for name, part in missing.items() if not part.optional]
    if absent or unexpected or shapes:
        raise ModelError(_complaint(where, absent, unexpected, shapes))
    if ignored:
        _log.warning("%d tensors of %s are not used, among them %s", len(ignored), where, ", ".join(ignored[:3]))


def _sources(
    files: ModelFiles, parts: dict[str, WeightPart], seed: int, device: str
) -> Iterator[tuple[str, TensorSource]]:
    if files.kind == "gguf":
        return gguf_sources(files.path, files.config)
    if files.kind == "dummy":
        return dummy_sources(parts, seed, device)
    return safetensors_sources(files.weights)


def _complaint(where: str, missing: list[str], unexpected: list[str], shapes: list[str]) -> str:
    lines = [f"the weights in {where} are not those of the model that its config describes:"]
    if missing:
        lines.append(f"  {len(missing)} missing: {', '.join(missing)}")
    if unexpected:
        lines.append(f"  {len(unexpected)} unexpected: {', '.join(unexpected)}")
    if shapes:
        lines.append(f"  {len(shapes)} of another shape: {'; '.join(shapes)}")
    lines.append("Download config.json and all weight files again, of one revision.")
    return "\n".join(lines)
