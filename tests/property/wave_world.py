"""Engine cores, their workers and the coordinator of their waves as a simulation of events, with a clock of its own.

Real: WaveCoordinator, WaveMember, WaveDesk. Simulated: sockets with delays and losses, workers that start and load,
exchanges that end when all ranks have come, requests as numbers of steps, pauses, and processes that die.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from octavo.engine_core.waves.coordinator import WaveCoordinator
from octavo.engine_core.waves.desk import WaveDesk
from octavo.engine_core.waves.member import WaveMember
from octavo.wire.waves import Report, ToMember
from octavo.wire.worker import StepPlan, StepResult

REPEAT = 0.5


@dataclass
class Exchange:
    """One step of a meeting: who has come, with what."""

    came: dict[int, tuple[str, bool | None]] = field(default_factory=dict)  # rank -> life, vote
    working: bool = False  # a rank computes requests in it


@dataclass
class Meeting:
    """Workers that met, and what they do together."""

    steps: list[Exchange] = field(default_factory=list)
    lives: dict[int, str] = field(default_factory=dict)  # of those who came
    broken: bool = False  # one of them is gone


class Workers:
    """A core's workers, one life after the other."""

    def __init__(self, world: World, rank: int) -> None:
        self._world, self._rank = world, rank
        self.core: SimCore | None = None
        self.meeting = ""
        self.up = False
        self.done = 0  # steps entered in this meeting
        self._start()

    def _start(self) -> None:
        world = self._world
        self.life, self.meeting, self.up, self.done = world.word(), "", False, 0
        life = self.life
        world.after(world.delay(0.5), lambda: self._hello(life))

    def _hello(self, life: str) -> None:
        if life == self.life and self.core is not None and self.core.alive:
            self.core.waves.workers_wait(life)

    def begin(self, meeting: str, life: str) -> None:
        """Load for a while; nobody is up before all have met."""
        world = self._world
        assert life == self.life and not self.meeting, "Init comes once in a life"
        self.meeting = meeting
        met = world.meetings.setdefault(meeting, Meeting())
        assert self._rank not in met.lives, "a meeting is met once"
        met.lives[self._rank] = life
        if len(met.lives) == world.size:
            for core in world.cores:
                world.after(world.delay(0.5), lambda core=core: core.workers.loaded(meeting))

    def loaded(self, meeting: str) -> None:
        """Be up, if nothing happened meanwhile."""
        if meeting == self.meeting and not self._world.meetings[meeting].broken:
            self.up = True
            assert self.core is not None
            self.core.turn()

    def leave(self, meeting: str) -> None:
        """Die because others have."""
        assert meeting == self.meeting
        self.die()

    def die(self) -> None:
        """Die; the core hears of it and starts others."""
        world = self._world
        met = world.meetings.get(self.meeting)
        self._start()
        if met is not None and not met.broken:
            met.broken = True
            world.after(world.delay(0.05), lambda: world.fail(met))
        assert self.core is not None
        if self.core.alive:
            self.core.in_flight = False
            self.core.waves.workers_down()
            self.core.turn()


class SimCore:
    """An engine core: so many steps of work, and the engine's use of waves."""

    def __init__(self, world: World, rank: int, work: int, paused: bool) -> None:
        self.world, self.rank, self.work, self.paused = world, rank, work, paused
        self.alive, self.in_flight, self._number = True, False, 0
        self.rest_told = False
        self.workers = Workers(world, rank)
        self.workers.core = self
        self.waves = WaveDesk(WaveMember(rank, world.every), lambda report: world.to_coordinator(self, report))
        self.waves.attach(self.workers)
        world.after(world.delay(REPEAT), self._repeat)

    # What a desk asks of a core.

    @property
    def empty(self) -> bool:
        return self.work == 0

    def next_plan(self) -> StepPlan | None:
        return self._plan() if self.work and not self.in_flight else None

    def idle_plan(self) -> StepPlan | None:
        return None if self.in_flight else self._plan()

    def _plan(self) -> StepPlan:
        self._number += 1
        return StepPlan(self._number, (), b"", (), b"", b"", b"")

    # What the engine does after each batch of messages.

    def turn(self) -> None:
        """Say how things stand, send a plan."""
        if not self.alive:
            return
        runs = self.workers.up and not self.paused
        self.waves.say(runs and not self.empty, runs, self.world.weights)
        while self.workers.up and (plan := self.waves.next_plan(self, runs)) is not None:  # type: ignore[arg-type]
            assert not self.rest_told or not self.paused, "a rank at rest stepped"
            working = runs and self.work > 0
            self.work -= working
            self.in_flight = True
            self.world.enter(self, plan, working)
        if self.paused and self.waves.at_rest:
            self.rest_told = True

    def result(self, life: str, result: StepResult) -> None:
        """Take what a step brought."""
        if self.alive and life == self.workers.life:
            self.in_flight = False
            self.waves.result(result)
            self.turn()

    def pause(self, paused: bool) -> None:
        """Pause or resume; a pause is complete when `rest_told`."""
        self.paused, self.rest_told = paused, False
        self.turn()

    def _repeat(self) -> None:
        if self.alive:
            self.waves.repeat()
            self.world.after(REPEAT, self._repeat)


class World:
    """Owns the clock and everything in it."""

    def __init__(self, size: int, every: int, seed: int, loss: float = 0.0, errors: bool = True) -> None:
        """`loss`: share of letters that are lost. `errors`: whether an exchange fails when a rank is gone (gloo), or
        waits for ever (NCCL)."""
        self.size, self.every, self.weights = size, every, "0"
        self.now = 0.0
        self.meetings: dict[str, Meeting] = {}
        self.trailing = 0  # the most steps in a row of one wave in which nobody had work
        self._random = random.Random(seed)
        self._loss, self._errors = loss, errors
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._arrivals: dict[tuple[str, int], float] = {}
        self.coordinator = WaveCoordinator(size, self.word)
        self.cores = [SimCore(self, rank, 0, False) for rank in range(size)]

    def word(self) -> str:
        """Return a word that was never used."""
        self._count += 1
        return f"w{self._count}"

    def delay(self, most: float) -> float:
        """Return a random time."""
        return self._random.random() * most

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Let something happen later."""
        self._count += 1
        heapq.heappush(self._events, (self.now + seconds, self._count, act))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, act = heapq.heappop(self._events)
            act()
            self.coordinator.check()
        self.now = end

    def runs_until(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Let time pass until something holds; whether it did in time."""
        end = self.now + seconds
        while not holds() and self.now < end:
            self.run(0.05)
        return holds()

    def _travels(self, way: tuple[str, int], act: Callable[[], None]) -> None:
        """Deliver in order, late, or never."""
        if self._random.random() >= self._loss:
            at = max(self._arrivals.get(way, 0.0), self.now + self.delay(0.01))
            self._arrivals[way] = at
            self.after(at - self.now, act)

    def to_coordinator(self, core: SimCore, report: Report) -> None:
        """Send a report to the coordinator that lives now, which may not live when it comes."""
        coordinator = self.coordinator

        def arrive() -> None:
            if coordinator is self.coordinator:
                for rank, letter in coordinator.take(report):
                    self._to_core(rank, letter)

        self._travels(("up", core.rank), arrive)

    def _to_core(self, rank: int, letter: ToMember) -> None:
        core = self.cores[rank]

        def arrive() -> None:
            if core.alive:
                core.waves.take(letter)
                core.turn()

        self._travels(("down", rank), arrive)

    def enter(self, core: SimCore, plan: StepPlan, working: bool) -> None:
        """Let a rank come to its next exchange; the last to come ends it for all."""
        workers = core.workers
        met = self.meetings[workers.meeting]
        assert met.lives[core.rank] == workers.life
        number, workers.done = workers.done, workers.done + 1
        while len(met.steps) <= number:
            met.steps.append(Exchange())
        step = met.steps[number]
        step.came[core.rank] = (workers.life, plan.unfinished)
        step.working |= working
        if met.broken:
            self.after(self.delay(0.05), lambda: self.fail(met))
        elif len(step.came) == self.size:
            self._end(met, number)

    def _end(self, met: Meeting, number: int) -> None:
        step = met.steps[number]
        votes = [vote for _, vote in step.came.values()]
        assert len({vote is None for vote in votes}) == 1, "ranks disagree about whether this step asks"
        agreed = None if votes[0] is None else any(votes)
        idle = 0
        while idle <= number and not met.steps[number - idle].working:
            idle += 1
        self.trailing = max(self.trailing, idle)
        if agreed is False:
            step.working = True  # what comes next belongs to another wave
        for rank, (life, _) in step.came.items():
            result = StepResult(0, b"", b"", b"", b"", 0, unfinished=agreed)
            core = self.cores[rank]
            self.after(self.delay(0.02), lambda core=core, life=life, result=result: core.result(life, result))

    def fail(self, met: Meeting) -> None:
        """Let those who wait in an exchange of a broken meeting see an error, where the library has errors."""
        if self._errors:
            for rank, life in met.lives.items():
                core = self.cores[rank]
                if core.workers.life == life and core.in_flight:
                    core.workers.die()

    def kill_worker(self, rank: int) -> None:
        """End a worker as SIGKILL does."""
        self.cores[rank].workers.die()

    def kill_core(self, rank: int) -> None:
        """End a core with its workers, and the coordinator with core 0; its requests are sent again."""
        core = self.cores[rank]
        core.alive = False
        core.workers.die()
        if rank == 0:
            self.coordinator = WaveCoordinator(self.size, self.word)
        self.cores[rank] = SimCore(self, rank, core.work, core.paused)

    @property
    def stuck(self) -> list[int]:
        """Ranks that are in an exchange."""
        return [core.rank for core in self.cores if core.in_flight]

    @property
    def finished(self) -> bool:
        """Whether all work is done and no rank is in a step."""
        return not self.stuck and all(core.empty and not core.waves._member.in_wave for core in self.cores)

    @property
    def all_at_rest(self) -> bool:
        """Whether every pause is complete."""
        return all(core.rest_told for core in self.cores)
