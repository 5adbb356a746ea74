"""Fixtures of the end-to-end tests: a tiny model, a server of it, and a frontend with a scripted engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.frontend.processes import Programs
from octavo.errors import ConfigError
from tests.e2e.server import Server, running
from tests.tiny import make_llama


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama in a folder."""
    return make_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def server(tiny: Path) -> Iterator[Server]:
    """A server of the tiny model in fp32, under the name "tiny"."""
    flags = ("--served-model-name", "tiny", "--dtype", "float32", "--kv-cache-memory-bytes", "16M")
    with running(tiny, *flags) as running_server:
        yield running_server


@pytest.fixture(scope="session")
def programs() -> Programs:
    """The frontend, octavo-mock and octavo-load; `make test` builds all three."""
    try:
        return Programs.find()
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def surface(tiny: Path) -> Iterator[Server]:
    """A server of the tiny model for the tests of the whole API, which share it: a short context, parsers, no keys."""
    flags = ("--served-model-name", "tiny", "--dtype", "float32", "--kv-cache-memory-bytes", "16M")
    parsers = ("--tool-call-parser", "hermes", "--enable-auto-tool-choice")
    with running(tiny, *flags, "--max-model-len", "256", *parsers) as running_server:
        yield running_server
