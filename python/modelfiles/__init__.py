"""What a model's files say, read without torch: the supervisor checks them before any process starts."""

from __future__ import annotations

from octavo.modelfiles.files import ModelFiles, resolve
from octavo.modelfiles.locate import locate
from octavo.modelfiles.tokenizer import export_tokenizer

__all__ = ["ModelFiles", "export_tokenizer", "locate", "resolve"]
