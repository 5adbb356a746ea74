"""A bare octavo-frontend, without an engine: enough for whatever happens before one is asked."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from octavo.config import FrontendConfig
from octavo.edge_config import EdgeConfig
from octavo.runfolder import run_folder
from octavo.serve import frontend_program

__all__ = ["Frontend", "bare_frontend"]


@dataclass(frozen=True)
class Frontend:
    """A running frontend."""

    process: subprocess.Popen[str]
    port: int
    log: Path

    def text(self) -> str:
        """Return the log so far."""
        return self.log.read_text()


@contextlib.contextmanager
def bare_frontend(tokenizer: Path, edge: EdgeConfig, **settings: object) -> Iterator[Frontend]:
    """Run a frontend with the tokenizer of a model's folder until the end of the block."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener, run_folder() as folder:
        config = FrontendConfig(
            listen_fd=listener.fileno(),
            engine_endpoints=[f"ipc://{folder}/frontend.sock"],
            tokenizer_dir=str(tokenizer),
            served_model_names=["tiny"],
            edge=edge,
            **settings,  # type: ignore[arg-type]
        )
        (folder / "frontend.json").write_bytes(msgspec.json.encode(config))
        log = folder / "log"
        with log.open("w") as stderr:
            process = subprocess.Popen(
                [frontend_program(), "--config", str(folder / "frontend.json")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                pass_fds=(listener.fileno(),),
            )
        with process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                assert line, log.read_text()
                assert json.loads(line)["event"] == "listening"
                yield Frontend(process, listener.getsockname()[1], log)
            finally:
                process.kill()
