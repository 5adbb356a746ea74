"""What an operation is: a generator that says what it waits for, between changes that happen at once."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from octavo.errors import ControlError

if TYPE_CHECKING:
    from octavo.engine_core.control.model_state import ModelState
    from octavo.wire.worker import ModelControlDone

__all__ = [
    "Args",
    "Ask",
    "Context",
    "Host",
    "Operation",
    "Steps",
    "Until",
    "ask",
    "boolean",
    "choice",
    "integer",
    "json_object",
]

#: Of a Control.
Args = dict[str, str]


class Until(NamedTuple):
    """Go on when this holds; asked after every batch of messages."""

    holds: Callable[[], bool]


class Ask(NamedTuple):
    """Go on when all ranks have answered this."""

    op: str
    args: Args


#: Yields what it waits for, is sent the ranks' answers (none for an Until), returns the result.
Steps = Generator[Until | Ask, "list[ModelControlDone]", Args]


class Host(Protocol):
    """The engine as operations see it. No method waits."""

    def quiet(self) -> bool:
        """Whether no plan is in flight, and none will be for the sake of other ranks."""
        ...

    def drained(self) -> bool:
        """Whether no request is left but those that are held."""
        ...

    def abort_requests(self, names: list[str]) -> int:
        """End the requests of these names, or all, as aborted; their clients are told. Returns their number."""
        ...

    def reset_prefix_cache(self, running: bool) -> None:
        """Let nothing that was computed so far be found any more. With `running`, running requests start over."""
        ...

    def kv_lost(self) -> None:
        """Compute all requests again: the workers drop what they have. Nothing may be in flight."""
        ...

    def use_weights(self, key: str) -> None:
        """Compute all requests again under other weights. Nothing may be in flight."""
        ...

    def changed(self) -> None:
        """Tell the frontend of the model's state."""
        ...

    def describe(self) -> Args:
        """Return what there is to know of the engine."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """What operations work on."""

    state: ModelState
    host: Host
    weight_store: str  # folder that keeps weights that came over a wire; empty: none does


Operation = Callable[[Context, Args], Steps]


def ask(op: str, args: Args) -> Generator[Until | Ask, list[ModelControlDone], list[ModelControlDone]]:
    """Wait for all ranks' answers. Raises ControlError if one of them refuses."""
    answers = yield Ask(op, args)
    for answer in answers:
        if answer.error is not None:
            raise ControlError(answer.error, answer.code, answer.param)
    return answers


def choice(args: Args, name: str, choices: tuple[str, ...], default: str) -> str:
    """Read one of several words. Raises ControlError."""
    word = args.get(name, default)
    if word not in choices:
        raise ControlError(f"{name!r} must be one of {', '.join(choices)}; got {word!r}", "invalid", name)
    return word


def boolean(args: Args, name: str, default: bool) -> bool:
    """Read true or false. Raises ControlError."""
    return choice(args, name, ("true", "false"), str(default).lower()) == "true"


def integer(args: Args, name: str, choices: range, default: int) -> int:
    """Read one of a few integers. Raises ControlError."""
    return int(choice(args, name, tuple(map(str, choices)), str(default)))


def json_object(args: Args, name: str) -> dict[str, object]:
    """Read a JSON object. Raises ControlError."""
    try:
        value = msgspec.json.decode(args.get(name, ""))
    except msgspec.DecodeError as error:
        raise ControlError(f"{name!r} must be a JSON object: {error}", "invalid", name) from None
    if not isinstance(value, dict):
        raise ControlError(f"{name!r} must be a JSON object; got {type(value).__name__}", "invalid", name)
    return value
