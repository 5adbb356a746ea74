"""Make tokenizer.json of a slow tokenizer (sentencepiece, word pieces, BPE files), by Transformers' own converters."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from octavo.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["convert_slow_tokenizer", "has_slow_tokenizer"]

#: Files of slow tokenizers that Transformers converts.
_SLOW = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "vocab.txt", "vocab.json")

#: Run in a process of its own: Transformers is large, and what starts the server stays small.
_CONVERT = (
    "import sys; from transformers import AutoTokenizer\n"
    "tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], local_files_only=True, trust_remote_code=False)\n"
    "if getattr(tokenizer, 'backend_tokenizer', None) is None:\n"
    "    sys.exit('Transformers has no fast form of it')\n"
    "tokenizer.backend_tokenizer.save(sys.argv[2])\n"
)


def has_slow_tokenizer(source: Path) -> bool:
    """Return whether the folder has files of a slow tokenizer."""
    return any((source / name).is_file() for name in _SLOW)


def convert_slow_tokenizer(source: Path, folder: Path) -> None:
    """Write `folder`/tokenizer.json from the slow tokenizer's files in `source`, as Transformers converts them.

    Raises ModelError if there are none, or they cannot be converted: with what to do. Code of the model's is not run.
    """
    found = [name for name in _SLOW if (source / name).is_file()]
    advice = (
        "Give a folder that has one as --tokenizer, or write tokenizer.json where the tokenizer loads: "
        f"AutoTokenizer.from_pretrained({json.dumps(str(source))}).save_pretrained({json.dumps(str(source))})."
    )
    if not found:
        raise ModelError(
            f"{source} has no tokenizer: no tokenizer.json, tekken.json, tiktoken file or slow one. {advice}"
        )
    command = [sys.executable, "-c", _CONVERT, str(source), str(folder / "tokenizer.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ModelError(
            f"{source} has a slow tokenizer ({', '.join(found)}) that cannot be converted: {reason}. {advice}"
        )
