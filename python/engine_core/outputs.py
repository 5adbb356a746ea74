"""From a worker's StepResult to the deltas that the frontend gets."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from octavo.errors import ProtocolError
from octavo.wire.frontend import Delta, Finish

if TYPE_CHECKING:
    from octavo.engine_core.news import News
    from octavo.engine_core.request import Request
    from octavo.engine_core.sched.draft import Row
    from octavo.engine_core.sched.scheduler import Scheduler
    from octavo.wire.frontend import Logprobs, Pooled
    from octavo.wire.worker import RowLogprobs, StepResult

__all__ = ["apply_result", "end_delta", "last_delta"]

#: The length of one token, packed.
_ONE = array("i", [1]).tobytes()


def apply_result(scheduler: Scheduler, result: StepResult) -> list[Delta]:
    """Apply the result of the oldest plan in flight and return what is new for the frontend.

    Raises ProtocolError if the result is not that plan's.
    """
    flight = scheduler.take_flight(result.step)
    if (result.slots, result.generations) != (flight.slots, flight.generations):
        raise ProtocolError(f"the result of step {result.step} is for other rows than the plan sampled")
    steady = 4 * len(flight.steady)  # bytes
    if len(result.lengths) != len(result.slots) or result.lengths[:steady] != _ONE * len(flight.steady):
        raise ProtocolError(f"the result of step {result.step} has the lengths {result.lengths.hex()}")
    deltas = scheduler.complete_steady(flight, result.tokens[:steady])
    if flight.rows:
        deltas += _apply_rows(scheduler, flight.rows, result, steady)
    scheduler.step_ended(result.step)
    return deltas


def _apply_rows(scheduler: Scheduler, rows: list[Row], result: StepResult, begin: int) -> list[Delta]:
    """Apply what the rows drew; their parts of the result begin at byte `begin`."""
    lengths, tokens = array("i", result.lengths[begin:]), array("i", result.tokens[begin:])
    deltas: list[Delta] = []
    entry = offset = 0
    told, prompts = _by_row(result.logprobs), _by_row(result.prompt_logprobs)
    pooled = {(row.slot, row.generation): row.values for row in result.pooled}
    for row in rows:
        sampled = tokens[:0]
        if row.samples:
            length, pools = lengths[entry], row.request.pooling is not None
            if not (length == 0 if pools else 1 <= length <= row.drafts + 1):
                raise ProtocolError(f"a row with {row.drafts} drafts of step {result.step} yielded {length} tokens")
            sampled = tokens[offset : offset + length]
            entry, offset = entry + 1, offset + length
        outcome = scheduler.complete(row, sampled)
        if outcome is None:
            continue
        if row.request.pooling is not None:
            if outcome.finish is not None:
                deltas.append(_delta_of_vectors(row, outcome.finish, pooled))
            continue
        news = row.request.news
        if news is not None:
            key = (row.slot, row.generation)
            if key in prompts:
                news.read_prompt(prompts[key])
            news.took(told.get(key), outcome.took)
            if outcome.took and news.due(row.request.emitted, outcome.finish is not None):
                deltas.append(_delta_with_news(row.request, news, outcome.finish))
        elif outcome.took:
            kept = sampled if outcome.took == len(sampled) else sampled[: outcome.took]
            deltas.append(_delta(row.request, kept, outcome.finish))
    return deltas


def end_delta(request_id: int, attempt: int, start: int, finish: Finish) -> Delta:
    """Return a delta that ends a request without new tokens; `start` is the number of those emitted before."""
    return Delta(request_id, attempt, start, b"", finish)


def last_delta(request: Request, finish: Finish) -> Delta:
    """Return a delta that ends a request from outside, with the tokens that were not told yet."""
    if request.news is not None:
        return _delta_with_news(request, request.news, finish)
    return end_delta(request.id, request.attempt, request.emitted, finish)


def _delta(request: Request, sampled: array[int], finish: Finish | None) -> Delta:
    cached, request.unreported_cached = request.unreported_cached, None
    queued, request.queued_us = request.queued_us, None
    start = request.emitted - len(sampled)
    return Delta(request.id, request.attempt, start, sampled.tobytes(), finish, cached, queued_us=queued)


def _delta_of_vectors(row: Row, finish: Finish, pooled: dict[tuple[int, int], Pooled]) -> Delta:
    """Return the only delta of a request that pools. Raises ProtocolError if the result has no vectors of it."""
    request = row.request
    values = pooled.get((row.slot, row.generation))
    if values is None:
        raise ProtocolError(f"the result has no vectors of {request}")
    cached, request.unreported_cached = request.unreported_cached, None
    queued, request.queued_us = request.queued_us, None
    return Delta(request.id, request.attempt, 0, b"", finish, cached, queued_us=queued, pooled=values)


def _delta_with_news(request: Request, news: News, finish: Finish | None) -> Delta:
    """Return a delta of all tokens that were not told, with their log probabilities."""
    cached, request.unreported_cached = request.unreported_cached, None
    queued, request.queued_us = request.queued_us, None
    start = news.told
    logprobs, prompt_logprobs = news.tell(request.emitted)
    return Delta(
        id=request.id,
        attempt=request.attempt,
        start=start,
        tokens=request.tokens[request.prompt_len + start :].tobytes(),
        finish=finish,
        cached_tokens=cached,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        queued_us=queued,
    )


def _by_row(found: tuple[RowLogprobs, ...]) -> dict[tuple[int, int], Logprobs]:
    return {(row.slot, row.generation): row.values for row in found}
