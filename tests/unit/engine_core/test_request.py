"""The state machine of one request."""

from __future__ import annotations

from array import array

import msgspec
import pytest

from octavo.engine_core.cache.coordinator import KvTables
from octavo.engine_core.request import Request, Status
from octavo.engine_core.sched.budget import SchedLimits
from octavo.errors import RequestError
from tests.engine.harness import request

LIMITS = SchedLimits(4, 64, 100, vocab_size=1000)


def running(prompt: int = 10, max_tokens: int = 8, stop: tuple[int, ...] = (), hit: int = 0) -> Request:
    """Return a request that runs in slot 3."""
    made = Request(request(1, list(range(prompt)), max_tokens, stop=stop), {}, LIMITS)
    made.start(3, 7, KvTables([]), hit)
    return made


def test_counts_known_and_in_flight_alike() -> None:
    r = running()
    assert r.remaining == 10
    r.scheduled(6, 0, False)
    assert r.remaining == 4
    r.scheduled(4, 0, True)
    assert r.remaining == 1  # the token that the row in flight will sample
    r.check()
    assert r.completed(6, 0, False, array("i")) is None
    assert r.completed(4, 0, True, array("i", [42])) is None
    assert (r.num_computed, list(r.tokens[-1:]), r.remaining) == (10, [42], 1)
    r.check()


def test_accepted_drafts_move_both_ends() -> None:
    r = running(max_tokens=20)
    r.scheduled(10, 0, True)
    r.completed(10, 0, True, array("i", [1]))
    r.scheduled(4, 3, True)
    assert (r.remaining, r.tokens_max) == (1, 15)
    r.completed(4, 3, True, array("i", [2, 3, 4]))
    assert (r.num_computed, len(r.tokens), r.remaining, r.tokens_max) == (13, 14, 1, 14)
    r.check()


def test_stop_id_cuts_what_follows() -> None:
    r = running(stop=(5,))
    r.scheduled(12, 2, True)
    finish = r.completed(12, 2, True, array("i", [4, 5, 6]))
    assert finish is not None
    assert (finish.reason, finish.stop_token, list(r.tokens[10:])) == ("stop", 5, [4, 5])


def test_limit_cuts_what_follows() -> None:
    r = running(max_tokens=2)
    r.scheduled(12, 2, True)
    finish = r.completed(12, 2, True, array("i", [4, 5, 6]))
    assert finish is not None
    assert (finish.reason, r.emitted) == ("length", 2)


def test_context_ends_a_request_before_max_tokens() -> None:
    assert Request(request(1, [0] * 95, 50), {}, LIMITS).limit == 100


@pytest.mark.parametrize(
    ("prompt", "code", "words"),
    [
        ([], "invalid", "no tokens"),
        ([0] * 100, "too_long", "100 tokens and the context is 100"),
        ([5, 1000], "invalid", "token id 1000 is not in the vocabulary of 1000"),
        ([-1, 5], "invalid", "token id -1 "),
    ],
)
def test_refuses_what_no_worker_could_compute(prompt: list[int], code: str, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        Request(request(1, prompt, 5), {}, LIMITS)
    assert (caught.value.code, caught.value.param) == (code, "prompt")


def test_refuses_bytes_that_are_no_tokens() -> None:
    with pytest.raises(RequestError, match="4 bytes each"):
        Request(msgspec.structs.replace(request(1, [1]), prompt=b"12345"), {}, LIMITS)


def test_requeue_keeps_tokens_and_forgets_the_rest() -> None:
    r = running()
    r.scheduled(10, 0, True)
    r.completed(10, 0, True, array("i", [42]))
    r.scheduled(1, 0, True)
    r.requeue()
    r.check()
    assert (r.status, len(r.tokens), r.num_computed, r.remaining) == (Status.WAITING, 11, 0, 11)


def test_replay_with_nothing_left() -> None:
    replay = request(1, [1, 2], 3, emitted=(7, 8, 9), attempt=2)
    assert (done := Request(replay, {}, LIMITS).finished_already()) is not None
    assert done.reason == "length"
    stopped = request(1, [1, 2], 9, emitted=(7, 8), stop=(8,), attempt=2)
    assert (done := Request(stopped, {}, LIMITS).finished_already()) is not None
    assert (done.reason, done.stop_token) == ("stop", 8)
    assert Request(request(1, [8], 9, stop=(8,)), {}, LIMITS).finished_already() is None, (
        "the prompt may end with any id"
    )


def test_two_crashes_make_a_suspect_and_two_more_alone_convict() -> None:
    r = running()
    r.crashed(alone=True)
    assert not r.suspect
    r.crashed(alone=True)
    assert r.suspect
    assert r.crashes_alone == 0, "a stream that happened to be alone is not convicted by two kills from outside"
    r.crashed(alone=False)
    r.crashed(alone=True)
    r.crashed(alone=True)
    assert r.crashes_alone == 2


def test_progress_beyond_the_high_water_mark_acquits() -> None:
    r = running()
    r.scheduled(6, 0, False)
    r.completed(6, 0, False, array("i"))
    r.crashed(alone=False)
    r.crashed(alone=False)
    r.requeue()
    r.start(0, 8, KvTables([]), 0)
    r.scheduled(6, 0, False)
    r.completed(6, 0, False, array("i"))
    assert r.suspect, "it came so far before"
    r.scheduled(4, 0, True)
    r.completed(4, 0, True, array("i", [1]))
    assert not r.suspect


def test_moves_out_of_order_are_refused() -> None:
    r = running()
    with pytest.raises(ValueError, match="is not waiting"):
        r.start(0, 1, KvTables([]), 0)
    r.finish()
    with pytest.raises(ValueError, match="finished already"):
        r.finish()
    with pytest.raises(ValueError, match="is not running"):
        r.completed(1, 0, True, [1])
