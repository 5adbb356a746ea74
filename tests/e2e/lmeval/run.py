"""`make lm-eval`: lm-eval's `hf` back end and its API back ends against octavo, on the tasks beside this file.

The same SmolLM2 in fp32, by Transformers and by octavo: log likelihoods must agree within 1e-3, texts literally. It
is used as it is, by its command line, in an environment of its own: `target/lmeval`.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.modelfiles import export_tokenizer, resolve, smollm2
from tests.e2e.server import running

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
FOLDER = ROOT / "target" / "lmeval"
TOLERANCE = 1e-3
MARK = "<!-- written by make lm-eval -->\n"
LIMIT_S = 1800


@dataclass(frozen=True)
class Sample:
    """One question, by its place in its task: what the model gave for each request that was made of it."""

    given: list[Any]


def make_model() -> Path:
    """Write SmolLM2, as Transformers dequantises it, into a folder in fp32; return the folder."""
    folder = FOLDER / "smollm2"
    if (folder / "config.json").exists():
        return folder
    import torch
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    path = smollm2.find() or smollm2.fetch()
    tokenizer = FOLDER / "tokenizer"
    tokenizer.mkdir(parents=True, exist_ok=True)
    export_tokenizer(resolve(str(path)), tokenizer)
    PreTrainedTokenizerFast.from_pretrained(tokenizer).save_pretrained(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    # It is plain fp32 now, but Transformers does not save what was read from GGUF.
    settings = model.config.to_dict()
    settings.pop("quantization_config", None)
    plain = type(model)(type(model.config).from_dict(settings)).float()
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(folder)
    return folder


def lm_eval(name: str, model: str, arguments: dict[str, str], tasks: list[str], *flags: str) -> dict[str, list[Sample]]:
    """Run lm-eval's command line; return the samples of each task in the order of its documents."""
    out = FOLDER / "out" / f"{name}-{time.time_ns()}"
    given = ",".join(f"{key}={value}" for key, value in arguments.items())
    command = [str(FOLDER / "venv" / "bin" / "lm-eval"), "run", "--model", model, "--model_args", given]
    command += ["--tasks", ",".join(tasks), "--include_path", str(HERE / "tasks"), "--output_path", str(out)]
    # Nothing is fetched: the tasks' data are beside them.
    env = os.environ | {"HF_HOME": str(FOLDER / "hf"), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    subprocess.run([*command, "--log_samples", *flags], cwd=HERE / "tasks", env=env, timeout=LIMIT_S, check=True)
    found: dict[str, list[Sample]] = {}
    for task in tasks:
        (file,) = out.rglob(f"samples_{task}_*.jsonl")
        rows = sorted((json.loads(line) for line in file.read_text().splitlines()), key=lambda row: row["doc_id"])
        found[task] = [Sample([_plain(one) for one in row["resps"]]) for row in rows]
    return found


def _plain(given: Any) -> Any:
    """Undo lists around one value, and numbers as texts."""
    while isinstance(given, list) and len(given) == 1:
        given = given[0]
    if isinstance(given, list):
        return [_plain(one) for one in given]
    try:
        return ast.literal_eval(given) if isinstance(given, str) else given
    except (ValueError, SyntaxError):
        return given


@dataclass(frozen=True)
class Compared:
    """A task by two back ends."""

    task: str
    backend: str
    values: int
    worst: float | None  # None: texts
    different: int

    @property
    def agrees(self) -> bool:
        """Whether nothing differs by more than it may."""
        return self.different == 0 and self.values > 0


def compare(task: str, backend: str, reference: list[Sample], got: list[Sample]) -> Compared:
    """Hold samples against each other."""
    pairs = [
        (one, other)
        for left, right in zip(reference, got, strict=True)
        for one, other in zip(left.given, right.given, strict=True)
    ]
    if any(isinstance(one, str) for one, _ in pairs):
        return Compared(task, backend, len(pairs), None, sum(one != other for one, other in pairs))
    worst, different = 0.0, 0
    for one, other in pairs:
        (likelihood, *greedy), (theirs, *their_greedy) = _listed(one), _listed(other)
        worst = max(worst, abs(likelihood - theirs))
        different += abs(likelihood - theirs) > TOLERANCE or greedy != their_greedy
    return Compared(task, backend, len(pairs), worst, different)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def main() -> int:
    """Run all and write docs/lm-eval.md's table; returns the exit code."""
    folder = make_model()
    likelihoods, answers = ["octavo_capitals", "octavo_passages"], ["octavo_answers"]
    local = {"pretrained": str(folder), "dtype": "float32"}
    cpu = ("--device", "cpu", "--batch_size", "1")
    plain = lm_eval("hf", "hf", local, [*likelihoods, *answers], *cpu)
    chat = lm_eval("hf-chat", "hf", local, answers, *cpu, "--apply_chat_template")
    flags = ("--served-model-name", "smollm2", "--dtype", "float32", "--kv-cache-memory-bytes", "1G")
    compared = []
    with running(folder, *flags) as server:
        common = {"model": "smollm2", "num_concurrent": "8", "tokenizer_backend": "huggingface"}
        completions = common | {"base_url": f"{server.url}/v1/completions", "tokenizer": str(folder)}
        for how in ({"tokenized_requests": "True"}, {"tokenized_requests": "False"}):
            tasks = [*likelihoods, *answers]
            got = lm_eval("completions", "local-completions", completions | how, tasks)
            name = "local-completions, " + ("token ids" if how["tokenized_requests"] == "True" else "texts")
            compared += [compare(task, name, plain[task], got[task]) for task in tasks]
        chats = {"model": "smollm2", "num_concurrent": "8", "base_url": f"{server.url}/v1/chat/completions"}
        got = lm_eval("chats", "local-chat-completions", chats, answers, "--apply_chat_template")
        compared += [compare(task, "local-chat-completions", chat[task], got[task]) for task in answers]
    write(compared)
    for one in compared:
        print(f"{'ok' if one.agrees else 'NOT'}  {one}")
    failed = sum(not one.agrees for one in compared)
    print(f"{len(compared) - failed} passed, {failed} failed")
    return 1 if failed else 0


def write(compared: list[Compared]) -> None:
    """Put the table behind the mark in docs/lm-eval.md."""
    lines = ["| task | back end | values | largest difference | beyond 1e-3, or not equal |", "|---|---|---|---|---|"]
    for one in compared:
        worst = "–" if one.worst is None else f"{one.worst:.1e}"
        lines.append(f"| `{one.task}` | {one.backend} | {one.values} | {worst} | {one.different} |")
    page = ROOT / "docs" / "lm-eval.md"
    before, mark, _ = page.read_text(encoding="utf-8").partition(MARK)
    assert mark, f"{page} has no line {MARK.strip()}"
    page.write_text(before + MARK + "\n" + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
