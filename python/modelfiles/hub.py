"""Models by their name on the Hugging Face Hub, through its own client and cache."""

from __future__ import annotations

import re
from pathlib import Path

from octavo.errors import NO_ROOM, ModelError
from octavo.modelfiles.gguf_parts import without_parts

__all__ = ["fetch", "is_hub_name"]

#: What a model needs besides weights.
_SMALL = ("*.json", "*.jinja", "tokenizer*", "*.model", "merges.txt", "vocab.txt", "*.tiktoken")
#: Other forms of the same weights that some repositories keep in folders.
_IGNORED = ("original/*", "onnx/*", "metal/*", "openvino/*", "coreml/*")


def is_hub_name(name: str) -> bool:
    """Return whether `name` looks like ORG/NAME, or ORG/NAME:PART for a .gguf file whose name has PART in it."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+(:[\w.-]+)?", name) is not None


def fetch(name: str, revision: str | None = None, weights: bool = True) -> Path:
    """Return the folder, or the .gguf file, of a model; what the cache lacks is downloaded first.

    `revision`: a branch, a tag or a commit; None: the main branch. `weights` False: the tokenizer's files alone.
    Raises ModelError, which says what to do, if there is no such model or revision, or if the Hub cannot be reached
    and the cache does not have it.
    """
    # Here, because it takes half a second to import and most starts do without.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    repository, _, part = name.partition(":")
    wanted = [*_SMALL]
    if weights:
        wanted += [f"*{part}*.gguf"] if part else ["*.safetensors"]
    try:
        folder = Path(
            snapshot_download(repository, revision=revision, allow_patterns=wanted, ignore_patterns=[*_IGNORED])
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ModelError(_reason(repository, revision, error)) from error
    if weights and not part and not (folder / "config.json").is_file():
        raise ModelError(
            f"{name} has no config.json. If it holds .gguf files, name one by a part of its name: {name}:Q4_K_M."
        )
    return _gguf(folder, part, name) if part and weights else folder


def _gguf(folder: Path, part: str, name: str) -> Path:
    found = without_parts(folder.rglob(f"*{part}*.gguf"))
    if len(found) != 1:
        names = ", ".join(file.name for file in found) or "none"
        raise ModelError(f"{name}: {part!r} must name one .gguf file of the repository; found: {names}.")
    return found[0]


def _reason(repository: str, revision: str | None, error: Exception) -> str:
    from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError
    from huggingface_hub.errors import RevisionNotFoundError as NoRevision

    if isinstance(error, GatedRepoError):
        return (
            f"{repository} asks for consent: accept its terms on huggingface.co, then set HF_TOKEN or `hf auth login`."
        )
    if isinstance(error, RepositoryNotFoundError):
        return (
            f"there is no folder {repository!r}, and no model of this name on the Hub that you can see. Check the "
            "name; for a private model set HF_TOKEN."
        )
    if isinstance(error, NoRevision):
        return f"{repository} has no revision {revision!r}. Give a branch, a tag or a commit as --revision."
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return f"the cache has no room for {repository}: {error}. Free some space, or set HF_HOME to another folder."
    if isinstance(error, LocalEntryNotFoundError | OSError):
        where = f"revision {revision!r} of {repository}" if revision else repository
        return (
            f"{where} is not on this machine, and the Hugging Face Hub cannot be reached. Connect, set HF_ENDPOINT to "
            "a mirror, or give the path of a model folder or .gguf file. (A model that was fetched once needs no Hub.)"
        )
    return f"the Hugging Face Hub refused {repository}: {error}"
