"""What the measurements without a server share: the engine's flags, random prompts, the JSON file."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from octavo.config import library_settings
from octavo.errors import ConfigError, OctavoError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np

    from octavo.llm import LLM, RequestOutput

__all__ = ["add_engine_flags", "count", "failed", "load", "random_prompts", "write_json"]


def count(low: int) -> Any:
    """Return what parses a flag's count of at least `low`."""

    def parse(text: str) -> int:
        value = int(text)
        if value < low:
            raise ValueError(text)
        return value

    parse.__name__ = f"count of at least {low}"  # argparse says "invalid count of at least 1 value: '0'"
    return parse


def add_engine_flags(parser: argparse.ArgumentParser) -> None:
    """Add --model and the flags of `octavo serve` that concern the model, the engine and the log."""
    group = parser.add_argument_group("engine", "as for `octavo serve`")
    group.add_argument("--model", required=True, help="model folder or .gguf file")
    for setting in _engine_settings():
        default = {"log_level": "warning"}.get(setting.name, setting.shown)
        shown = f" (default: {default})" if setting.default not in ((), "") else ""
        text = (setting.help + shown).replace("%", "%%")
        if setting.switch:
            for name, word in ((setting.flag, "true"), (f"--no-{setting.flag[2:]}", "false")):
                help = text if word == "true" else argparse.SUPPRESS
                group.add_argument(name, dest=setting.name, action="store_const", const=word, default=None, help=help)
            continue
        group.add_argument(setting.flag, dest=setting.name, metavar=setting.metavar, default=None, help=text)


def load(given: dict[str, Any], tokens: int) -> LLM:
    """Load the model of the flags. Raises ConfigError where its context does not hold so many tokens of a request."""
    from octavo.llm import LLM  # not at the top: --help must not pay for it

    llm = LLM(given["model"], **{setting.name: given[setting.name] for setting in _engine_settings()})
    if tokens > llm.max_model_len:
        context = llm.max_model_len
        llm.close()
        raise ConfigError(
            f"--input-len and --output-len make {tokens} tokens, and the context holds {context}: give less, or a "
            "longer --max-model-len if the model allows it",
            "input-len",
        )
    return llm


def random_prompts(rng: np.random.Generator, number: int, length: int, vocab_size: int) -> list[dict[str, list[int]]]:
    """Draw prompts of random token ids: no two are likely to share a block, so that the prefix cache finds nothing."""
    return [{"prompt_token_ids": rng.integers(vocab_size, size=length).tolist()} for _ in range(number)]


def failed(outputs: Sequence[RequestOutput]) -> Iterator[str]:
    """Yield what went wrong with the requests that failed."""
    return (output.error or "unknown" for output in outputs if output.outputs[0].finish_reason == "error")


def write_json(path: str | None, figures: dict[str, Any]) -> None:
    """Write figures, with the date, where a path is given. Raises OctavoError."""
    if path is None:
        return
    dated = {"date": time.strftime("%Y%m%d-%H%M%S"), **figures}
    try:
        Path(path).write_bytes(msgspec.json.format(msgspec.json.encode(dated)) + b"\n")
    except OSError as error:
        raise OctavoError(f"cannot write {path}: {error}") from None


def _engine_settings() -> list[Any]:
    return [s for s in library_settings() if not s.positional and not s.many]
