"""The context of a GPU, begun early."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from octavo.workers import context


class Driver:
    """Stands in for the driver: one device."""

    def __init__(self, found: bool) -> None:
        self.found = found
        self.calls: list[Any] = []

    def cuInit(self, flags: int) -> int:
        self.calls.append(("init", flags))
        return 0 if self.found else 100

    def cuDeviceGet(self, place: Any, index: int) -> int:
        self.calls.append(("device", index))
        place._obj.value = index
        return 0 if index == 0 else 101

    def cuDevicePrimaryCtxRetain(self, _: Any, device: ctypes.c_int) -> int:
        self.calls.append(("retain", device.value))
        return 0


@pytest.mark.parametrize(
    ("device", "found", "calls"),
    [
        ("cuda:0", True, ["init", "device", "retain"]),
        ("cuda", True, ["init", "device", "retain"]),
        ("cuda:3", True, ["init", "device"]),
        ("cuda:0", False, ["init"]),
    ],
)
def test_what_fails_is_left_to_torch(
    monkeypatch: pytest.MonkeyPatch, device: str, found: bool, calls: list[str]
) -> None:
    driver = Driver(found)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver)
    thread = context.begin_context(device)
    assert thread is not None
    thread.join(10)
    assert [name for name, _ in driver.calls] == calls


def test_a_machine_without_a_driver_and_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "_DRIVER", "libno-such-driver.so")
    assert context.begin_context("cpu") is None
    thread = context.begin_context("cuda:0")
    assert thread is not None
    thread.join(10)
