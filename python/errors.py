"""The error tree.

OctavoError
├── ConfigError         a flag or a combination of flags that cannot work; ends the command with exit code 2
├── ModelError          files that cannot be served: absent, damaged, of an unknown kind
├── RequestError        one request cannot run; only that request fails
├── ControlError        an operation on the engine cannot be done; nothing has changed unless the message says so
├── ProtocolError       a peer sent what this version does not understand
├── EngineError         the engine cannot go on
│   ├── WorkerError     a worker died, hung or reported a fault
│   └── PeerError       a rank that holds some of the experts is gone, and with it what this one was computing
└── SupervisionError    children failed more often than their restart intensity allows

Messages say what was wrong, with the value, and what to do about it. They are shown to users as they are.
"""

from __future__ import annotations

import errno

__all__ = [
    "NO_ROOM",
    "ConfigError",
    "ControlError",
    "EngineError",
    "ModelError",
    "OctavoError",
    "PeerError",
    "ProtocolError",
    "RequestError",
    "SupervisionError",
    "WorkerError",
]


#: Of an OSError: the disk is full, for all or for this user.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class OctavoError(Exception):
    """Base of all errors that octavo raises on purpose."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ConfigError(OctavoError):
    """A setting is wrong. `param` is the flag's name without dashes, where one is at fault."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class ModelError(OctavoError):
    """A model's files cannot be served."""


class RequestError(OctavoError):
    """One request cannot run. `param` is the request field at fault."""

    def __init__(self, message: str, code: str = "invalid", param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


class ControlError(OctavoError):
    """An operation on the engine cannot be done. `code` is as in ControlDone, `param` the argument at fault."""

    def __init__(self, message: str, code: str = "failed", param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


class ProtocolError(OctavoError):
    """A message, a handshake or a version is not what this process can work with."""


class EngineError(OctavoError):
    """The engine cannot go on."""


class WorkerError(EngineError):
    """A worker died, hung or reported a fault. `kind` is as in EngineFault."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class PeerError(EngineError):
    """A rank that shares the model's experts is gone in the middle of a step, or never came."""


class SupervisionError(OctavoError):
    """A supervisor gave up."""
