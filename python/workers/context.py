"""The context of a GPU, made while torch is being imported: both take time, and neither needs the other."""

from __future__ import annotations

import ctypes
import threading

__all__ = ["begin_context"]

_DRIVER = "libcuda.so.1"


def begin_context(device: str) -> threading.Thread | None:
    """Begin to make the context of `device` ("cuda:N"); None for others.

    The process keeps it, and torch takes it over. What fails here fails again when torch asks, which says why.
    """
    kind, _, index = device.partition(":")
    if kind != "cuda":
        return None
    thread = threading.Thread(target=_retain, args=(int(index or 0),), name="context", daemon=True)
    thread.start()
    return thread


def _retain(index: int) -> None:
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), index) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
