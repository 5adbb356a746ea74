"""Who is to blame when the workers crash again and again."""

from __future__ import annotations

from tests.engine.harness import Harness, Setup, request


def test_one_request_that_crashes_the_worker_fails_and_no_other() -> None:
    h = Harness(Setup(model="fake?in_process=1&poison=13", max_num_seqs=4))
    for number in (1, 2, 4, 5):
        h.add(request(number, [number] * 5, 6))
    h.step()
    h.add(request(3, [13] * 5, 6))
    h.run()
    assert (h.seen[3].finish, h.seen[3].tokens) == ("error", [])
    assert "crashed 2 times" in (h.seen[3].message or "")
    del h.requests[3]
    h.verify_all()
    assert h.restarts <= 4


def test_a_request_that_is_alone_from_the_start_has_four_lives() -> None:
    h = Harness(Setup(model="fake?in_process=1&poison=13"))
    h.add(request(3, [13] * 5, 6))
    h.run()
    assert (h.seen[3].finish, h.restarts) == ("error", 4)


def test_kills_between_progress_convict_nobody() -> None:
    h = Harness(Setup())
    for number in (1, 2):
        h.add(request(number, [number] * 5, 30))
    for _ in range(12):
        h.send()
        h.crash()
        h.step()
        h.step()
    h.run()
    h.verify_all()


def test_suspects_run_one_at_a_time() -> None:
    h = Harness(Setup(window=2))
    for number in (1, 2, 3):
        h.add(request(number, [number] * 5, 6))
    for _ in range(2):
        h.send()
        h.crash()
    for _ in range(3):
        assert h.send()
        assert len(h.plans[0].rows) == 4
        assert not h.send(), "one plan in flight, so that a crash has one cause"
        h.receive()
    h.send()
    assert len(h.plans[0].rows) == 3 * 4
    h.receive()
    h.run()
    h.verify_all()
