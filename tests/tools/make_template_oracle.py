"""Render a folder of chat templates with Transformers: `python -m tests.tools.make_template_oracle OUT [TEMPLATES]`.

Every `*.jinja` below TEMPLATES (default: those of the shared oracle) meets every conversation of the shared
conversations.py. OUT gets a row of JSON for each: what the template is given (template, sha256, case, messages, tools,
documents, the two switches, special, kwargs, now) and `expected`, the text, or `error` (kind, class, raise_exception,
message). Special tokens are those of the shared rows of the same template, or of `NAME.special.json` beside the
template, or plain ones. The clock stands still. To add a template, drop its file into the folder and run `make oracle`.
"""

from __future__ import annotations

import copy
import datetime
import gzip
import hashlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

from transformers.utils import chat_template_utils

__all__ = ["render", "rows"]

SHARED = Path(os.environ.get("OCTAVO_SHARED", Path(__file__).resolve().parents[3] / "shared")) / "oracles/templates"
NOW = datetime.datetime(2026, 3, 4, 5, 6, 7)
PLAIN = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


class _Standing(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]
        return NOW if tz is None else NOW.astimezone(tz)


def _conversations() -> list[dict[str, Any]]:
    spec = importlib.util.spec_from_file_location("conversations", SHARED / "conversations.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: list[dict[str, Any]] = module.C
    return found


def _known_special() -> dict[str, dict[str, str]]:
    with gzip.open(SHARED / "transformers.jsonl.gz", "rt", encoding="utf-8") as file:
        return {row["sha256"]: row["special"] for row in map(json.loads, file)}


def render(source: str, case: dict[str, Any], special: dict[str, str]) -> dict[str, Any]:
    """Return `expected` or `error` of a conversation."""
    given = copy.deepcopy(case)
    try:
        texts, _ = chat_template_utils.render_jinja_template(
            [given["messages"]],
            tools=given.get("tools"),
            documents=given.get("documents"),
            chat_template=source,
            add_generation_prompt=given.get("agp", True),
            continue_final_message=given.get("cfm", False),
            **special,
            **given.get("kwargs", {}),
        )
    except Exception as error:
        return {"error": _described(error)}
    return {"expected": texts[0]}


def _described(error: Exception) -> dict[str, Any]:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    own = trace is not None and trace.tb_frame.f_code.co_name == "raise_exception"
    return {
        "kind": "raise_exception" if own else type(error).__name__,
        "class": f"{type(error).__module__}.{type(error).__name__}".removeprefix("builtins."),
        "raise_exception": own,
        "message": str(error),
    }


def rows(templates: Path) -> list[dict[str, Any]]:
    """Return the rows of a folder: one for each different template that compiles and each conversation."""
    chat_template_utils.datetime = _Standing
    known, cases, seen = _known_special(), _conversations(), set()
    found = []
    for path in sorted(templates.rglob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        digest = hashlib.sha256(source.encode()).hexdigest()
        if digest in seen:
            continue
        seen.add(digest)
        try:
            chat_template_utils._compile_jinja_template(source)
        except Exception as error:
            print(f"{path}: left out, as Transformers cannot compile it: {error}", file=sys.stderr)
            continue
        beside = path.with_suffix(".special.json")
        special = known.get(digest) or (json.loads(beside.read_text()) if beside.is_file() else PLAIN)
        for case in cases:
            row = {
                "template": str(path.relative_to(templates)),
                "sha256": digest,
                "case": case["id"],
                "messages": case["messages"],
                "tools": case.get("tools"),
                "documents": case.get("documents"),
                "add_generation_prompt": case.get("agp", True),
                "continue_final_message": case.get("cfm", False),
                "special": special,
                "kwargs": case.get("kwargs", {}),
                "now": NOW.isoformat(),
            }
            found.append(row | render(source, case, special))
    return found


def main() -> None:
    """Write the rows, and say how they compare with the shared file where the templates are the shared ones."""
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    templates = Path(sys.argv[2]) if len(sys.argv) == 3 else SHARED / "jinja"
    lines = [json.dumps(row, ensure_ascii=False) for row in rows(templates)]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    errors = sum('"error": {"kind"' in line for line in lines)
    print(f"{out}: {len(lines)} rows, {errors} of them errors")
    if templates == SHARED / "jinja":
        with gzip.open(SHARED / "transformers.jsonl.gz", "rt", encoding="utf-8") as file:
            same = sum(ours == theirs.rstrip("\n") for ours, theirs in zip(lines, file, strict=False))
        print(f"{same} rows are those of the shared file, byte for byte")


if __name__ == "__main__":
    main()
