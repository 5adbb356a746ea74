"""Fill a model's weights, strictly: every tensor of the checkpoint is used, and every weight is found."""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError

from octavo.errors import ModelError
from octavo.workers.loading.dummy import dummy_sources
from octavo.workers.loading.gguf import gguf_sources
from octavo.workers.loading.progress import LoadProgress
from octavo.workers.loading.safetensors import safetensors_sources

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from octavo.layers.base import TensorSource, WeightPart
    from octavo.layers.batch import Progress
    from octavo.modelfiles import ModelFiles
    from octavo.models.base import Model

__all__ = ["fill", "load_weights"]

_log = logging.getLogger(__name__)

#: Tensors that are read at the same time, at most.
_THREADS = 8


def load_weights(
    model: Model,
    files: ModelFiles,
    seed: int,
    progress: Progress,
    device: str = "cpu",
    show: bool = True,
    overlays: tuple[str, ...] = (),
) -> None:
    """Load `files` into `model` and bring every layer into its final layout. `seed` is of dummy weights.

    Dummy weights are made on `device`; others are read on the CPU, several at a time, and copied to where the model
    has them. `show`: report how far loading is. `progress.layer` counts the tensors, so that a slow load is no hang.

    `overlays`: folders of safetensors files that are loaded over it, in order, each with any number of the tensors.
    Raises ModelError, which names the tensors, if any are missing, unexpected or of another shape.
    """
    parts = model.checkpoint()
    needed = sum(not part.optional for part in parts.values())
    with LoadProgress(needed, progress, show) as loading:
        fill(model, parts, _sources(files, parts, seed, device), str(files.path), loading)
    for folder in overlays:
        _overlay(parts, Path(folder), progress)
    for _, layer in model.walk():
        layer.finish()
        progress.layer += 1


def _overlay(parts: dict[str, WeightPart], folder: Path, progress: Progress) -> None:
    """Load the copy of a weight update. Raises ModelError if it cannot be read."""
    try:
        files = tuple(sorted(folder.glob("*.safetensors")))
        for name, source in safetensors_sources(files):
            parts[name].load(source)
            progress.layer += 1
    except (OSError, SafetensorError) as error:
        raise ModelError(f"the copy of updated weights in {folder} cannot be read: {error}") from None
    if not files:
        raise ModelError(f"the copy of updated weights in {folder} is gone; restart the server to begin anew")


def fill(
    model: Model,
    parts: dict[str, WeightPart],
    sources: Iterator[tuple[str, TensorSource]],
    where: str,
    loading: LoadProgress,
) -> None:
    """Hand each source to the part of its name. `where` is for messages. Raises ModelError as `load_weights`."""
    missing = dict(parts)
    unexpected: list[str] = []
    ignored: list[str] = []
    shapes: list[str] = []
    reading: deque[Future[None]] = deque()
    threads = max(1, min(_THREADS, torch.get_num_threads()))
    with ThreadPoolExecutor(threads, "load") as pool:
        for given, source in sources:
            name = model.canonical(given)
            part = missing.pop(name, None)
            if part is None:
                (ignored if model.is_ignored(name) else unexpected).append(given)
            elif tuple(source.shape) != part.shape:
                shapes.append(f"{given} is {list(source.shape)}, not {list(part.shape)}")
            else:
                reading.append(pool.submit(_load, part, source, loading))
            while len(reading) > 2 * threads:
                reading.popleft().result()
        for future in reading:
            future.result()
    absent = [name for name, part in missing.items() if not part.optional]
    if absent or unexpected or shapes:
        raise ModelError(_complaint(where, absent, unexpected, shapes))
    if ignored:
        _log.warning("%d tensors of %s are not used, among them %s", len(ignored), where, ", ".join(ignored[:3]))


def _load(part: WeightPart, source: TensorSource, loading: LoadProgress) -> None:
    part.load(source)
    loading.advance()


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
