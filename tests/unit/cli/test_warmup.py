"""`octavo warmup` starts an engine with random weights and stops it, whatever comes of it."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from octavo.cli import main
from octavo.errors import ModelError
from octavo.llm import model


class Loaded:
    """Stands for a loaded model."""

    made: list[Loaded] = []  # noqa: RUF012

    def __init__(self, config: Any) -> None:
        self.config, self.closed = config, False
        ready: Future[Any] = Future()
        if config.model == "bad":
            ready.set_exception(ModelError("no such model"))
        else:
            ready.set_result(SimpleNamespace(startup_ms=2500))
        self.engine = SimpleNamespace(ready=ready)
        Loaded.made.append(self)

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(("name", "code"), [("good", 0), ("bad", 2)])
def test_it_starts_and_stops(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, code: int
) -> None:
    monkeypatch.setattr(model, "LoadedModel", Loaded)
    assert main(["warmup", name, "--tensor-parallel-size", "2"]) == code
    one = Loaded.made.pop()
    assert one.closed
    assert (one.config.load_format, one.config.tensor_parallel_size) == ("dummy", 2)
    out = capsys.readouterr()
    assert ("is warm after" in out.out) == (code == 0)


def test_a_model_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["warmup"])
    assert ended.value.code == 2
    assert "MODEL is missing" in capsys.readouterr().err
