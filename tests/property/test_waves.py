"""Waves of ranks that share experts, simulated: random delays, arrivals, pauses, losses and deaths."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.wave_world import World

SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.integers(2, 5)
EVERY = st.sampled_from([1, 2, 3, 8])
#: Far more than anything takes: losses are made good after half a second each.
PATIENCE = 300.0


def settle(world: World) -> None:
    """All work must end, every rank must be out of its wave, and waves without work must have been short."""
    assert world.runs_until(lambda: world.finished, PATIENCE), f"stuck in an exchange: {world.stuck}"
    world.run(5.0)
    assert world.finished, "a wave began that nobody wanted"
    assert world.trailing <= world.every, "more steps without work than from one agreement to the next"


@given(seed=SEEDS, size=SIZES, every=EVERY)
@settings(max_examples=60, deadline=None)
def test_requests_at_any_rank_wake_all_and_waves_end(seed: int, size: int, every: int) -> None:
    world, choose = World(size, every, seed), random.Random(seed)
    for _ in range(choose.randrange(1, 12)):
        core = world.cores[choose.randrange(size)]
        core.work += choose.randrange(1, 30)
        core.turn()
        world.run(choose.choice([0.0, 0.01, 0.3, 3.0]))
    settle(world)
    counts = {core.workers.done for core in world.cores}
    assert len(counts) == 1 and counts != {0}, "all ranks made the same number of steps"


@given(seed=SEEDS, size=SIZES, every=EVERY)
@settings(max_examples=60, deadline=None)
def test_pauses_end_at_one_step_and_nobody_steps_in_them(seed: int, size: int, every: int) -> None:
    """Pauses reach ranks at different times, with work under way and requests coming; some pause again at once."""
    world, choose = World(size, every, seed), random.Random(seed)
    for _ in range(choose.randrange(1, 5)):
        for core in world.cores:
            core.work += choose.choice([0, 0, 5, 200])
            core.turn()
        world.run(choose.choice([0.0, 0.2, 2.0]))
        for core in choose.sample(world.cores, size):
            core.pause(True)
            world.run(choose.choice([0.0, 0.02]))
        assert world.runs_until(lambda: world.all_at_rest, PATIENCE), "a pause that never comes to its end"
        assert not world.stuck
        steps = {core.workers.done for core in world.cores if core.workers.up}
        assert len(steps) <= 1, "all ranks stopped at the same step"
        world.run(choose.choice([0.0, 1.0]))
        for core in choose.sample(world.cores, size):
            core.pause(False)
            world.run(choose.choice([0.0, 0.02]))
    settle(world)


@given(seed=SEEDS, size=SIZES, every=EVERY)
@settings(max_examples=40, deadline=None)
def test_a_rank_that_is_paused_alone_steps_while_others_work_and_they_wait_afterwards(
    seed: int, size: int, every: int
) -> None:
    world = World(size, every, seed)
    first, other = world.cores[0], world.cores[1]
    other.work = 20
    other.turn()
    assert world.runs_until(lambda: 0 < other.work < 20, PATIENCE)
    first.pause(True)
    assert world.runs_until(lambda: first.rest_told, PATIENCE)
    assert other.empty, "the wave went on for the other's sake"
    other.work = 5
    other.turn()
    world.run(3.0)
    assert other.work == 5 and not world.stuck, "no rank waits in an exchange for one that does not come"
    other.pause(True)
    assert world.runs_until(lambda: other.rest_told, PATIENCE), "nor does its pause wait for anybody"
    first.pause(False)
    other.pause(False)
    settle(world)


@given(seed=SEEDS, size=SIZES, every=EVERY, errors=st.booleans(), loss=st.sampled_from([0.0, 0.1]))
@settings(max_examples=120, deadline=None)
def test_deaths_and_losses_leave_nobody_behind(seed: int, size: int, every: int, errors: bool, loss: float) -> None:
    """Workers and cores die at any moment, the coordinator's too; exchanges fail, or hang for ever."""
    world, choose = World(size, every, seed, loss, errors), random.Random(seed)
    for _ in range(choose.randrange(1, 8)):
        rank = choose.randrange(size)
        act = choose.choice(["work", "work", "pause", "worker", "core"])
        if act == "work":
            world.cores[rank].work += choose.randrange(1, 40)
            world.cores[rank].turn()
        elif act == "pause":
            world.cores[rank].pause(not world.cores[rank].paused)
        elif act == "worker":
            world.kill_worker(rank)
        else:
            world.kill_core(rank)
        world.run(choose.choice([0.0, 0.01, 0.1, 1.0, 3.0]))
    for core in world.cores:
        core.pause(False)
    settle(world)


def test_ranks_with_different_weights_have_no_wave_together() -> None:
    world = World(2, 4, 0)
    one, other = world.cores
    world.run(5.0)
    for core in world.cores:
        core.pause(True)
    assert world.runs_until(lambda: world.all_at_rest, PATIENCE)
    world.weights = "1"
    one.work = 3
    one.pause(False)
    world.weights = "0"
    other.pause(False)
    world.run(3.0)
    assert one.work == 3 and not world.stuck
    world.weights = "1"
    other.turn()
    settle(world)
