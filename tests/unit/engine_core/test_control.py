"""Operations on the engine, against a host in memory: who may do what when, and what happens twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from octavo.engine_core.control.desk import OPERATIONS, QUESTIONS, UNSUPPORTED, ControlDesk
from octavo.engine_core.control.model_state import ModelState
from octavo.engine_core.control.operation import Context
from octavo.engine_core.journal import Journal
from octavo.wire.frontend import Control
from octavo.wire.worker import ModelControlDone

INIT = {"init_info": json.dumps({"backend": "shm"})}
UPDATE = {"update_info": json.dumps({"names": ["a"]})}


@dataclass
class Bench:
    """Host and outside at once: remembers what it was told; workers answer when `answer` says what."""

    folder: Path
    in_flight: int = 0
    open: int = 0
    ranks: int = 2
    store: str = ""
    told: list[str] = field(default_factory=list)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    done: dict[int, tuple[str | None, dict[str, str], str]] = field(default_factory=dict)
    answer: Callable[[str], list[tuple[dict[str, str], str | None, str]]] | None = None
    _number: int = 0

    def __post_init__(self) -> None:
        self.state = ModelState(Journal(self.folder / "journal.jsonl"))
        self.desk = ControlDesk(Context(self.state, self, self.store), self)
        self.answer = self.answer or self.agree

    def agree(self, op: str) -> list[tuple[dict[str, str], str | None, str]]:
        """Let all ranks say yes."""
        result = {"seal_weight_update": {"missing": "0"}, "wake_up": {"weight_key": self.state.journal.weights.key}}
        return [(result.get(op, {}), None, "")] * self.ranks

    def quiet(self) -> bool:
        return self.in_flight == 0

    def drained(self) -> bool:
        return self.open == 0 and self.in_flight == 0

    def abort_requests(self, names: list[str]) -> int:
        self.told.append("abort")
        count, self.open = self.open, 0
        return count

    def reset_prefix_cache(self, running: bool) -> None:
        self.told.append("reset")

    def kv_lost(self) -> None:
        self.told.append("kv_lost")

    def use_weights(self, key: str) -> None:
        self.told.append(f"use {key}")

    def changed(self) -> None:
        self.state.check()
        self.told.append(self.state.wire().state)

    def describe(self) -> dict[str, str]:
        return {"info": "{}"}

    def control_done(
        self,
        id_: int,
        error: str | None = None,
        result: dict[str, str] | None = None,
        code: str = "",
        param: str | None = None,
    ) -> None:
        assert id_ not in self.done
        self.done[id_] = (error, result or {}, code)

    def ask_workers(self, number: int, op: str, args: dict[str, str]) -> int:
        if not self.ranks:
            return 0
        self.asked.append((op, args))
        assert self.answer is not None
        for rank, (result, error, code) in enumerate(self.answer(op)):
            self.desk.answered_later = getattr(self.desk, "answered_later", [])  # type: ignore[attr-defined]
            self.desk.answered_later.append(ModelControlDone(rank, number, result, error, code))  # type: ignore[attr-defined]
        return self.ranks

    def turn(self) -> None:
        """Let everything happen that can."""
        self.desk.turn()
        while answers := getattr(self.desk, "answered_later", []):
            self.desk.answered_later = []  # type: ignore[attr-defined]
            for answer in answers:
                self.desk.answered(answer)
            self.desk.turn()

    def say(self, op: str, **args: str) -> int:
        """Ask for an operation and return its number."""
        self._number += 1
        self.desk.take(Control(self._number, op, args))
        self.turn()
        return self._number

    def ok(self, op: str, **args: str) -> dict[str, str]:
        """Ask for an operation, which must be done at once; return its result."""
        error, result, _ = self.done[self.say(op, **args)]
        assert error is None, error
        return result

    def refused(self, op: str, **args: str) -> str:
        """Ask for an operation, which must be refused; return the code."""
        error, _, code = self.done[self.say(op, **args)]
        assert error is not None
        return code

    def again(self) -> Bench:
        """Return a bench of the next process."""
        return Bench(self.folder, store=self.store)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_pause_keeps_waits_or_aborts(bench: Bench) -> None:
    bench.open = bench.in_flight = 1
    kept = bench.say("pause", mode="keep")
    assert bench.state.holds_new and not bench.state.may_schedule and kept not in bench.done
    bench.in_flight = 0
    bench.turn()
    assert bench.done[kept][0] is None and bench.open == 1
    assert bench.ok("is_paused") == {"is_paused": "true"}
    bench.ok("resume")
    assert bench.state.may_schedule and not bench.state.holds_new
    waits = bench.say("pause", mode="wait", clear_cache="false")
    assert bench.state.may_schedule and bench.state.holds_new and waits not in bench.done
    bench.open = 0
    bench.turn()
    assert bench.done[waits][0] is None and not bench.state.may_schedule
    bench.open = 2
    bench.ok("pause")
    assert bench.open == 0 and bench.told.count("abort") == 1 and bench.told.count("reset") == 2


def test_operations_are_idempotent(bench: Bench) -> None:
    for op, args in [
        ("pause", {}),
        ("init_weight_transfer_engine", INIT),
        ("start_weight_update", {}),
    ]:
        bench.ok(op, **args)
        bench.ok(op, **args)
    bench.ok("update_weights", **UPDATE)
    for _ in range(2):
        assert bench.ok("finish_weight_update", weight_version="v1")["weight_version"] == "v1"
    for op, args in [("resume", {}), ("sleep", {"level": "1"}), ("wake_up", {}), ("abort_weight_update", {})]:
        bench.ok(op, **args)
        bench.ok(op, **args)
    ops = [op for op, _ in bench.asked]
    assert {op: ops.count(op) for op in ops if op.endswith("weight_update") or op.startswith("init")} == {
        "init_weight_transfer": 2,  # workers know whether the trainer that they have met is still there
        "start_weight_update": 1,
        "seal_weight_update": 1,
        "commit_weight_update": 1,
    }
    assert bench.told.count("use v1") == 1 and bench.told[-1] == "running"


def test_no_update_without_session_no_session_without_pause(bench: Bench) -> None:
    assert bench.refused("update_weights", **UPDATE) == "conflict"
    assert bench.refused("finish_weight_update", weight_version="x") == "conflict"
    assert bench.refused("start_weight_update") == "conflict"
    bench.ok("init_weight_transfer_engine", **INIT)
    assert bench.refused("start_weight_update") == "conflict"
    bench.ok("pause", mode="keep")
    bench.ok("start_weight_update")
    for op in ("resume", "sleep"):
        assert bench.refused(op) == "conflict"
    assert bench.refused("finish_weight_update") == "conflict", "nothing was brought"
    bench.ok("resume")
    assert bench.asked[-1][0] == "abort_weight_update"


def test_a_trainer_that_begins_anew_inherits_nothing(bench: Bench) -> None:
    bench.ok("pause", mode="keep")
    for other in ({}, {"port": 1}):
        bench.ok("init_weight_transfer_engine", **INIT)
        bench.ok("start_weight_update")
        bench.ok("update_weights", **UPDATE)
        bench.ok("init_weight_transfer_engine", init_info=json.dumps({"backend": "shm", **other}))
        assert [op for op, _ in bench.asked[-2:]] == ["abort_weight_update", "init_weight_transfer"]
        assert bench.refused("finish_weight_update", weight_version="half") == "conflict"
        assert bench.refused("update_weights", **UPDATE) == "conflict"
    assert bench.ok("weight_info") == {"weight_version": "0"}


@pytest.mark.parametrize("level", ["0", "1"])
def test_nothing_wakes_the_scheduling_in_an_update(bench: Bench, level: str) -> None:
    bench.ok("sleep", level=level)
    bench.ok("wake_up", tags="weights")
    bench.ok("init_weight_transfer_engine", **INIT)
    bench.ok("start_weight_update")
    for tags in ("", "scheduling,kv_cache"):
        assert bench.refused("wake_up", tags=tags) == "conflict"
        assert not bench.state.may_schedule and bench.asked[-1][0] == "start_weight_update"
    bench.ok("update_weights", **UPDATE)
    bench.ok("finish_weight_update")
    bench.ok("wake_up")
    assert bench.state.may_schedule


def test_a_failed_update_leaves_the_weights_of_before(bench: Bench) -> None:
    bench.ok("pause", mode="keep")
    bench.ok("init_weight_transfer_engine", **INIT)
    bench.ok("start_weight_update")
    bad: list[tuple[dict[str, str], str | None, str]] = [({}, None, ""), ({}, "no such name", "invalid")]
    bench.answer = lambda op: bad if op == "update_weights" else bench.agree(op)
    assert bench.refused("update_weights", **UPDATE) == "invalid"
    assert bench.state.session is not None and bench.state.session.updates == 0
    bad[1] = ({}, "the trainer is gone", "failed")
    assert bench.refused("update_weights", **UPDATE) == "failed"
    assert bench.state.session is None and bench.asked[-1][0] == "abort_weight_update"
    assert bench.ok("weight_info") == {"weight_version": "0"}
    bench.answer = lambda op: bad if op == "seal_weight_update" else bench.agree(op)
    bench.ok("start_weight_update")
    bench.ok("update_weights", **UPDATE)
    assert bench.refused("finish_weight_update", weight_version="v") == "failed"
    assert bench.ok("weight_info") == {"weight_version": "0"} and not any(t.startswith("use") for t in bench.told)


def test_workers_that_die_in_a_commit_have_done_nothing(bench: Bench) -> None:
    bench.ok("pause", mode="keep")
    bench.ok("init_weight_transfer_engine", **INIT)
    bench.ok("start_weight_update")
    bench.ok("update_weights", **UPDATE)
    bench.answer = lambda op: [] if op == "commit_weight_update" else bench.agree(op)
    number = bench.say("finish_weight_update", weight_version="v")
    assert number not in bench.done
    bench.desk.workers_down("worker-0 was killed")
    bench.turn()
    error, _, code = bench.done[number]
    assert code == "failed" and error is not None and "worker-0" in error
    assert bench.state.session is None and bench.state.backend is None
    assert bench.again().ok("weight_info") == {"weight_version": "0"}


def test_lost_weights_need_an_update_that_brings_all(bench: Bench) -> None:
    bench.ok("pause", mode="keep")
    bench.ok("init_weight_transfer_engine", **INIT)
    bench.state.problem = "lost"
    bench.ok("start_weight_update")
    bench.ok("update_weights", **UPDATE)
    few: list[tuple[dict[str, str], str | None, str]] = [({}, "3 are missing", "conflict")] * 2
    bench.answer = lambda op: few if op == "seal_weight_update" else bench.agree(op)
    assert bench.refused("finish_weight_update") == "conflict"
    assert bench.asked[-1] == ("seal_weight_update", {"complete": "true"})
    bench.answer = bench.agree
    bench.ok("finish_weight_update")
    bench.ok("resume")
    assert bench.state.may_schedule and bench.state.problem == ""


def test_rl03_nothing_runs_until_all_is_awake(bench: Bench) -> None:
    bench.ok("sleep", level="1")
    bench.ok("wake_up", tags="weights")
    assert bench.ok("is_sleeping") == {"is_sleeping": "true"} and not bench.state.may_schedule
    bench.ok("wake_up", tags="kv_cache")
    assert bench.ok("is_sleeping") == {"is_sleeping": "false"} and bench.state.may_schedule
    bench.ok("sleep", level="0")
    assert bench.asked[-1][0] == "wake_up" and not bench.state.may_schedule
    bench.ok("wake_up", tags="scheduling")
    assert bench.state.may_schedule


def test_a_pause_from_before_a_sleep_outlives_it(bench: Bench) -> None:
    bench.ok("pause")
    bench.ok("sleep", level="2")
    bench.ok("wake_up")
    assert bench.state.wire().state == "paused"


def test_the_next_process_is_where_the_last_one_was(bench: Bench) -> None:
    bench.ok("sleep", level="2", mode="keep")
    bench.ok("pause", mode="keep")
    after = bench.again()
    assert after.state.wire().state == "sleeping" and after.state.paused
    after.desk.workers_ready()
    after.turn()
    assert after.asked == [("sleep", {"tags": "kv_cache,weights", "level": "2"})]
    after.ok("wake_up")
    after.ok("resume")
    assert bench.again().state.may_schedule


def test_what_waits_for_requests_can_be_overtaken(bench: Bench) -> None:
    bench.open = 1
    waits = bench.say("pause", mode="wait")
    bench.ok("resume")
    assert bench.done[waits][2] == "conflict" and bench.state.may_schedule
    waits = bench.say("sleep", mode="wait")
    bench.ok("pause", mode="abort")
    assert bench.done[waits][2] == "conflict" and bench.open == 0
    bench.open = 1
    assert bench.refused("reset", mode="wait") == "unsupported"


def test_nobody_hears_answers_to_a_frontend_that_is_gone(bench: Bench) -> None:
    bench.open = 1
    waits = bench.say("pause", mode="wait")
    bench.desk.frontend_gone()
    bench.open = 0
    bench.turn()
    assert waits not in bench.done and bench.state.paused


def test_versions_of_equal_name_never_share_keys(bench: Bench) -> None:
    bench.ok("pause", mode="keep")
    bench.ok("init_weight_transfer_engine", **INIT)
    for version in ("a", "b", "a", ""):
        bench.ok("start_weight_update")
        bench.ok("update_weights", **UPDATE)
        named = {"weight_version": version} if version else {}
        bench.ok("finish_weight_update", **named)
    assert [told for told in bench.told if told.startswith("use")] == ["use a", "use b", "use a~2", "use 4"]
    bench.ok("update_weight_version", new_version="c")
    assert bench.ok("weight_info") == {"weight_version": "c"}
    assert bench.state.journal.weights.key == "4", "other weights, not another name, make another key"


def test_rl06_every_operation_is_answered(bench: Bench) -> None:
    bench.ranks = 0
    for op in [*OPERATIONS, *QUESTIONS, *UNSUPPORTED, "no_such_operation"]:
        number = bench.say(op, **INIT, **UPDATE)
        assert number in bench.done, op
    for op, args in [
        ("pause", {"mode": "soon"}),
        ("sleep", {"level": "3"}),
        ("wake_up", {"tags": "weights,all"}),
        ("init_weight_transfer_engine", {"init_info": "[]"}),
        ("update_weight_version", {"new_version": ""}),
        ("abort_requests", {"request_ids": "{}"}),
    ]:
        assert bench.refused(op, **args) == "invalid"
