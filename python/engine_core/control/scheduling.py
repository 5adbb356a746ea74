"""Operations on what runs: pause and resume, sleep and wake."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from octavo.engine_core.control.model_state import KV_CACHE, SCHEDULING, TAGS, WEIGHTS
from octavo.engine_core.control.operation import Until, ask, boolean, choice, integer
from octavo.engine_core.journal import Asleep, Paused
from octavo.errors import ControlError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.engine_core.control.operation import Args, Context, Steps

__all__ = ["LOST", "pause", "resume", "sleep", "sleep_again", "wake_up"]

#: What becomes of requests that run: they end as aborted, they come to their end, they go on after the pause.
_MODES = ("abort", "wait", "keep")

#: Why a model whose weights nobody kept runs no requests.
LOST = (
    "the weights of version {!r} are gone, and no --weight-store kept a copy: send them again, all of them, in a "
    "weight update"
)


def pause(context: Context, args: Args) -> Steps:
    """Let nothing run. Requests that come later wait."""
    mode = choice(args, "mode", _MODES, "abort")
    clear = boolean(args, "clear_cache", default=True)
    state = context.state
    with _draining(context, mode) as until:
        yield until
        yield _stopped(context)
        if clear:
            context.host.reset_prefix_cache(running=False)
        if not state.paused:
            state.journal.record(Paused(True))
            state.paused = True
            context.host.changed()
    return {}


def resume(context: Context, args: Args) -> Steps:
    """Let requests run again."""
    yield from ()
    state = context.state
    if state.session is not None:
        raise ControlError("a weight update is under way: finish it (finish_weight_update) before resuming", "conflict")
    if state.paused:
        state.journal.record(Paused(False))
        state.paused = False
        context.host.changed()
    return {}


def sleep(context: Context, args: Args) -> Steps:
    """Pause, and give memory back: level 0 nothing, 1 the KV cache and, to the host, the weights, 2 both for good."""
    level = integer(args, "level", range(3), 1)
    mode = choice(args, "mode", _MODES, "abort")
    state, host = context.state, context.host
    if state.session is not None:
        raise ControlError("a weight update is under way: finish it (finish_weight_update) before sleeping", "conflict")
    tags = frozenset({SCHEDULING}) if level == 0 else TAGS
    with _draining(context, mode) as until:
        yield until
        yield _stopped(context)
        level = max(level, state.journal.asleep.level if state.asleep else 0)
        if tags - {SCHEDULING}:
            host.kv_lost()
            yield from ask("sleep", _sleep_args(tags, level))
        if tags - state.asleep or level > state.journal.asleep.level:
            state.journal.record(Asleep(tuple(sorted(state.asleep | tags)), level))
            state.asleep |= tags
            host.changed()
    return {}


def wake_up(context: Context, args: Args) -> Steps:
    """Undo a sleep, of all parts or of those named. Requests run when nothing sleeps any more."""
    words = [word for word in args.get("tags", "").split(",") if word]
    for word in words:
        choice({"tags": word}, "tags", tuple(sorted(TAGS)), "")
    state = context.state
    tags = frozenset(words) or TAGS
    memory = (tags & state.asleep) - {SCHEDULING}
    left = state.asleep - tags
    if memory and left == {SCHEDULING}:
        left = frozenset()  # it slept because of the memory
    if state.session is not None and not state.paused and SCHEDULING in state.asleep - left:
        raise ControlError("a weight update is under way: finish it (finish_weight_update) before waking", "conflict")
    if memory:
        wanted = state.journal.weights
        overlays = msgspec.json.encode(wanted.overlays).decode()
        wishes = {"tags": ",".join(sorted(memory)), "key": wanted.key, "overlays": overlays}
        answers = yield from ask("wake_up", wishes)
        if any(answer.result["weight_key"] != wanted.key for answer in answers if WEIGHTS in memory):
            state.problem = LOST.format(state.journal.weight_version)
    if left != state.asleep:
        state.journal.record(Asleep(tuple(sorted(left)), state.journal.asleep.level if left else 0))
        state.asleep = left
        context.host.changed()
    return {}


def sleep_again(context: Context, args: Args) -> Steps:
    """Put workers that were started again to sleep, as those before them were."""
    asleep = context.state.asleep - {SCHEDULING}
    if asleep:
        yield from ask("sleep", _sleep_args(asleep, context.state.journal.asleep.level))
    return {}


def _sleep_args(tags: frozenset[str], level: int) -> Args:
    return {"tags": ",".join(sorted(tags & {WEIGHTS, KV_CACHE})), "level": str(level)}


def _stopped(context: Context) -> Until:
    """Schedule nothing any more, and return what to wait for: other ranks may need this one for some steps yet."""
    context.state.draining = "keep"
    return Until(context.host.quiet)


@contextlib.contextmanager
def _draining(context: Context, mode: str) -> Iterator[Until]:
    """Bring what runs to a stop, until the end of the block; return what to wait for. New requests wait meanwhile."""
    state, host = context.state, context.host
    if mode == "wait" and not host.drained():
        if state.session is not None:
            raise ControlError("requests cannot come to their end while a weight update is under way", "conflict")
        if state.asleep or state.problem:
            raise ControlError("requests wait that cannot run now: abort them, or take mode keep", "conflict", "mode")
    state.draining = mode
    try:
        if mode == "abort":
            host.abort_requests([])
        yield Until(host.drained if mode == "wait" else host.quiet)
    finally:
        state.draining = None
