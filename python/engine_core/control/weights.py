"""Operations that give the model other weights: a session of init, start, update (any number), finish.

Workers load what comes into a second copy of the model. The copy takes the model's place in `finish`, on all ranks or,
by a restart of the workers, on none. So a failure leaves the weights of before; there is never a mixture.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from octavo.engine_core.control.model_state import WEIGHTS, Session
from octavo.engine_core.control.operation import Ask, ask, json_object
from octavo.engine_core.journal import Renamed, Weights
from octavo.errors import ControlError

if TYPE_CHECKING:
    from collections.abc import Generator

    from octavo.engine_core.control.operation import Args, Context, Steps, Until
    from octavo.wire.worker import ModelControlDone

__all__ = ["abort", "finish", "init", "rename", "start", "update"]

_VERSION_CHARS = 256
_DROPPED = "{}; the update is dropped, the weights are those of before"


def init(context: Context, args: Args) -> Steps:
    """Connect workers and trainer. A session that is open is dropped: a trainer that begins anew has left it.

    Again with the same description: workers keep a connection whose trainer is still there.
    """
    info = msgspec.json.encode(json_object(args, "init_info")).decode()
    state = context.state
    if state.session is not None:
        yield from _drop(context)
    state.backend = None
    yield from ask("init_weight_transfer", {"info": info})
    state.backend = info
    return {"message": "the weight transfer engine is initialised"}


def start(context: Context, args: Args) -> Steps:
    """Open a session. While one is open: nothing."""
    state = context.state
    if state.session is not None:
        return {"message": "a weight update was started before"}
    if state.backend is None:
        raise ControlError("there is no connection to a trainer: call init_weight_transfer_engine first", "conflict")
    if not state.is_paused:
        raise ControlError("requests may run: pause (mode keep, wait or abort) before a weight update", "conflict")
    if WEIGHTS in state.asleep:
        raise ControlError("the weights sleep: wake them (tags=weights) before a weight update", "conflict")
    try:
        yield from ask("start_weight_update", {})
    except ControlError:
        yield from _drop(context)
        raise
    state.session = Session()
    return {"message": "a weight update is started"}


def update(context: Context, args: Args) -> Steps:
    """Take in some tensors. What is wrong with their description leaves the session open; other failures end it."""
    info = msgspec.json.encode(json_object(args, "update_info")).decode()
    state = context.state
    session = state.session
    if session is None:
        raise ControlError("no weight update is under way: call start_weight_update first", "conflict")
    try:
        yield from ask("update_weights", {"info": info, "store": _staging(context)})
    except ControlError as error:
        if error.code == "invalid":
            raise
        yield from _drop(context)
        raise ControlError(
            f"{error.message}; the update is dropped, the weights are those of before", error.code
        ) from None
    session.updates += 1
    return {"message": "weights are updated"}


def finish(context: Context, args: Args) -> Steps:
    """Let the new weights take the place of the old ones, under a version. After it, with this version: nothing."""
    state, journal = context.state, context.state.journal
    version = _version(args, "weight_version") if "weight_version" in args else ""
    session = state.session
    if session is None:
        if version != journal.weight_version:
            raise ControlError("no weight update is under way: call start_weight_update first", "conflict")
        return {"message": "the weight update was finished before", "weight_version": version}
    if not session.updates:
        yield from _drop(context)
        raise ControlError("the weight update brought no weights; it is dropped", "conflict")
    version = version or journal.new_version()
    key = journal.new_key(version)
    complete = yield from _sealed(context)
    overlay = _overlay(context)
    yield from ask("commit_weight_update", {"key": key, "store": _staging(context), "overlay": overlay})
    journal.record(Weights(version, key, overlay, complete))
    _clean(context)
    state.session, state.problem = None, ""
    context.host.use_weights(key)
    context.host.changed()
    return {"message": "the weight update is finished", "weight_version": version}


def abort(context: Context, args: Args) -> Steps:
    """Drop a session and what it brought. Without one: nothing."""
    if context.state.session is not None:
        yield from _drop(context)
    return {"message": "no weight update is under way"}


def rename(context: Context, args: Args) -> Args:
    """Call the weights otherwise; they stay what they are, and so do requests."""
    version = _version(args, "new_version")
    if version != context.state.journal.weight_version:
        context.state.journal.record(Renamed(version))
        context.host.changed()
    return {"new_version": version}


def _sealed(context: Context) -> Generator[Until | Ask, list[ModelControlDone], bool]:
    """Make the copies ready on all ranks. Returns whether the update brought all weights.

    Where those of before are gone it must: else it is refused, and the session stays open for the others.
    """
    try:
        answers = yield from ask("seal_weight_update", {"complete": str(bool(context.state.problem)).lower()})
    except ControlError as error:
        if error.code == "conflict":
            raise
        yield from _drop(context)
        raise ControlError(_DROPPED.format(error.message)) from None
    return all(answer.result["missing"] == "0" for answer in answers)


def _drop(context: Context) -> Generator[Until | Ask, list[ModelControlDone], None]:
    context.state.session = None
    yield Ask("abort_weight_update", {"store": _staging(context)})


def _staging(context: Context) -> str:
    return str(Path(context.weight_store) / "staged") if context.weight_store else ""


def _overlay(context: Context) -> str:
    """Return the folder of the copy that is kept of the update; empty without a store."""
    if not context.weight_store:
        return ""
    number = sum(isinstance(record, Weights) for record in context.state.journal.records)
    return str(Path(context.weight_store) / f"{number:06d}")


def _clean(context: Context) -> None:
    """Remove copies that no restart needs any more."""
    store = Path(context.weight_store)
    if not context.weight_store or not store.is_dir():
        return
    wanted = context.state.journal.weights.overlays
    for folder in store.iterdir():
        if str(folder) not in wanted:
            shutil.rmtree(folder, ignore_errors=True)


def _version(args: Args, name: str) -> str:
    version = args.get(name, "")
    if not 0 < len(version) <= _VERSION_CHARS:
        raise ControlError(f"{name!r} must have 1 to {_VERSION_CHARS} characters; got {len(version)}", "invalid", name)
    return version
