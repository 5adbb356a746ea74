"""Instructions and allocations of a token, by the cost example of octavo-render; callgrind counts the instructions."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.render.conversations import Conversations, Messages

__all__ = ["Cost", "measure"]

_ROOT = Path(__file__).resolve().parents[2]
_BUILD = ("cargo", "build", "--quiet", "--release", "--locked", "-p", "octavo-render", "--example", "render_cost")
_COUNTED = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")
#: Conversations, and tokens of each.
_COUNT, _TOKENS = 24, 4_000


@dataclass(frozen=True, slots=True)
class Cost:
    """Figures of one token by what is done to it."""

    columns: tuple[str, ...]
    rows: dict[str, tuple[float, ...]]


def measure(folder: Path, texts: Conversations) -> Cost:
    """Build the example and run it on new conversations; instructions need valgrind, without it they are left out."""
    subprocess.run(_BUILD, cwd=_ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", _ROOT / "target"))
    command = [str(target / "release" / "examples" / "render_cost"), str(folder)]
    many = [texts.draw(_TOKENS, f"cost {number}") for number in range(_COUNT)]
    few = many[: _COUNT // 4]
    told = {what: _run([*command, what], many)[0] for what in ("render", "chat")}
    tokens = told["chat"]["tokens"]
    figures = {what: [told[what]["ns"] / tokens, told[what]["allocations"] / tokens] for what in told}
    columns = ["ns", "allocations"]
    if shutil.which("valgrind") is not None:
        columns.append("instructions")
        # A start costs what it costs: of many conversations less those of a few.
        more = tokens - _run([*command, "chat"], few)[0]["tokens"]
        for what in told:
            counts = [_collected([*_COUNTED, *command, what], part) for part in (many, few)]
            figures[what].append((counts[0] - counts[1]) / more)
    encode = [chat - render for chat, render in zip(figures["chat"], figures["render"], strict=True)]
    return Cost(tuple(columns), {"render": tuple(figures["render"]), "encode": tuple(encode)})


def _run(command: list[str], conversations: list[Messages]) -> tuple[dict[str, Any], str]:
    lines = "".join(json.dumps({"messages": messages}, ensure_ascii=False) + "\n" for messages in conversations)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    return json.loads(done.stdout), done.stderr


def _collected(command: list[str], conversations: list[Messages]) -> int:
    found = re.search(r"Collected : (\d+)", _run(command, conversations)[1])
    if found is None:
        raise SystemExit("bench.render: callgrind does not say what it counted")
    return int(found[1])
