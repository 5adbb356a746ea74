"""Servers on following ports: what is refused, what each gets, what is told of them."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from types import SimpleNamespace
from typing import Any

import pytest

from octavo import replicas
from octavo.actors.errors import ProcessDied
from octavo.actors.supervisor import ChildExit, Verdict
from octavo.config import ServeConfig, build
from octavo.errors import ConfigError


def config(**given: str) -> ServeConfig:
    return build({"model": "m", "data_parallel_size": "3", "data_parallel_multi_port_external_lb": "true", **given})


@pytest.mark.parametrize(
    ("given", "flag"),
    [
        ({"data_parallel_size": "1"}, "data_parallel_size"),
        ({"uds": "/tmp/x"}, "uds"),
        ({"grpc_port": "1"}, "grpc_port"),
        ({"port": "0"}, "port"),
        ({"port": "65534"}, "port"),
        ({"port": "9254"}, "data_parallel_supervisor_port"),
    ],
)
def test_what_cannot_be_is_refused_by_flag(given: dict[str, str], flag: str) -> None:
    with pytest.raises(ConfigError) as caught:
        replicas._ports(config(**given))
    assert caught.value.param == flag


def test_ports_follow_each_other() -> None:
    assert replicas._ports(config(port="8100")) == [8100, 8101, 8102]


def test_cpus_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "choose_threads", lambda asked, ranks: 64 // ranks)
    parts = replicas._parts(config(device="cpu", tensor_parallel_size="2"))
    assert [part.settings["threads"] for part in parts] == ["10"] * 3
    assert [part.settings["threads"] for part in replicas._parts(config(device="cpu", threads="5"))] == ["5"] * 3


@pytest.mark.parametrize("named", ["", "7,5,3,1,0,2"])
def test_each_has_gpus_of_its_own(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    monkeypatch.setattr(replicas, "visible_gpus", lambda: tuple(SimpleNamespace(total_bytes=1) for _ in range(6)))
    monkeypatch.setattr(replicas, "torch_has_cuda", lambda: True)
    parts = replicas._parts(config(tensor_parallel_size="2"))
    expected = ["7,5", "3,1", "0,2"] if named else ["0,1", "2,3", "4,5"]
    assert [part.env["CUDA_VISIBLE_DEVICES"] for part in parts] == expected


def get(port: int, path: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_the_status_tells_of_each() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with replicas._status_server(config(data_parallel_supervisor_port=str(port))) as status:
        assert get(port, "/health")[0] == 200
        assert get(port, "/ready")[0] == 503
        for rank in range(3):
            status.started(rank, f"http://127.0.0.1:{8000 + rank}")
        code, told = get(port, "/readyz")
        assert (code, told["status"]) == (200, "ready")
        assert told["ranks"][2] == {"rank": 2, "ready": True, "restarts": 0, "url": "http://127.0.0.1:8002"}
        status.ended(1)
        code, told = get(port, "/ready?x=1")
        assert (code, told["ranks"][1]["ready"], told["ranks"][1]["restarts"]) == (503, False, 1)
        assert get(port, "/other")[0] == 404
        with (
            pytest.raises(ConfigError, match="choose another"),
            replicas._status_server(config(data_parallel_supervisor_port=str(port))),
        ):
            pass


def test_a_replica_whose_settings_cannot_work_ends_all() -> None:
    supervisor = replicas._Replicas(config(), None, [replicas._Part()] * 3, replicas._Status(3))  # type: ignore[arg-type]
    assert supervisor._on_exit(ChildExit("replica-1", ProcessDied("replica-1", -9, []))) is None
    assert supervisor._on_exit(ChildExit("replica-1", ProcessDied("replica-1", 2, []))) is Verdict.GIVE_UP
