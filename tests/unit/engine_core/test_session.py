"""Pairs of sessions over channels that lose and repeat messages, with restarts of either end."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.engine_core.session import Kind, Role, Session, Verdict
from octavo.wire.frontend import Header

WINDOW = 1_000
FRONTEND, CORE = 0, 1

#: Which session a payload belonged to: both incarnations and the epoch.
Key = tuple[int, int, int]


@dataclass
class Packet:
    header: Header
    kind: Kind
    size: int = 0
    payload: int = 0
    sent: int = 0


@dataclass
class End:
    session: Session
    incarnation: int
    inbox: deque[tuple[int, int]] = field(default_factory=deque)  # (opening, bytes)
    sent: dict[Key, list[int]] = field(default_factory=lambda: defaultdict(list))
    delivered: dict[Key, list[int]] = field(default_factory=lambda: defaultdict(list))


def make_end(side: int, incarnation: int) -> End:
    role = Role.FRONTEND if side == FRONTEND else Role.CORE
    return End(Session(role, incarnation, WINDOW), incarnation)


class World:
    """Two ends, a lossy channel in each direction and a clock."""

    def __init__(self) -> None:
        self.ends = [make_end(FRONTEND, 1), make_end(CORE, 2)]
        self.wires: list[deque[Packet]] = [deque(), deque()]  # wires[s] carries what side s sent
        self.now = 0.0
        self.next_incarnation = 3
        self.next_payload = 0
        self.reopenings = 0

    def key(self, side: int) -> Key:
        end = self.ends[side]
        mine, peer = end.incarnation, end.session.peer
        return (mine, peer, end.session.epoch) if side == FRONTEND else (peer, mine, end.session.epoch)

    def post(self, side: int, header: Header, kind: Kind, sent: int = 0) -> None:
        self.wires[side].append(Packet(header, kind, sent=sent))

    def send(self, side: int, size: int) -> bool:
        end = self.ends[side]
        if not end.session.may_send(size):
            return False
        payload = self.next_payload
        self.next_payload += 1
        header = end.session.number(size, self.now)
        end.sent[self.key(side)].append(payload)
        self.wires[side].append(Packet(header, Kind.NUMBERED, size, payload))
        return True

    def arrive(self, origin: int) -> bool:
        if not self.wires[origin]:
            return False
        packet = self.wires[origin].popleft()
        side = 1 - origin
        end = self.ends[side]
        verdict = end.session.receive(packet.header, packet.kind, packet.size, self.now, sent=packet.sent)
        if verdict is Verdict.DELIVER:
            end.inbox.append((end.session.openings, packet.size))
            end.delivered[self.key(side)].append(packet.payload)
        elif verdict is Verdict.ASKED:
            self.post(side, end.session.open(packet.header, self.now), Kind.WELCOME)
        elif verdict is Verdict.LOST:
            self.reopenings += 1
            if side == FRONTEND:
                self.post(side, end.session.reopen(self.now), Kind.WELCOME)
        elif verdict is Verdict.STRANGER:
            header = end.session.nudge(packet.header, self.now)
            if header is not None:
                self.post(side, header, Kind.ACK)
        return True

    def consume(self, side: int) -> None:
        end = self.ends[side]
        if end.inbox:
            end.session.consumed(*end.inbox.popleft())

    def tick(self, seconds: float) -> None:
        self.now += seconds
        for side in (FRONTEND, CORE):
            session = self.ends[side].session
            if session.hello_due(self.now):
                self.post(side, session.hello(self.now), Kind.HELLO)
            elif session.ack_due(self.now):
                header, ack = session.ack(self.now)
                self.post(side, header, Kind.ACK, ack.sent)

    def restart(self, side: int) -> None:
        """Kill a process and start it again; what it sent last may still be under way."""
        fresh = make_end(side, self.next_incarnation)
        self.next_incarnation += 1
        fresh.sent, fresh.delivered = self.ends[side].sent, self.ends[side].delivered
        self.ends[side] = fresh
        self.wires[1 - side].clear()

    def settle(self) -> None:
        for _ in range(60):
            self.tick(0.1)
            while self.arrive(FRONTEND) or self.arrive(CORE):
                pass
            while self.ends[FRONTEND].inbox or self.ends[CORE].inbox:
                self.consume(FRONTEND)
                self.consume(CORE)

    def check(self) -> None:
        for side in (FRONTEND, CORE):
            end = self.ends[side]
            end.session.check()
            assert end.session.held <= max(WINDOW, 5_000), "more is held than was granted"
            for key, got in end.delivered.items():
                assert self.ends[1 - side].sent[key][: len(got)] == got


SIDES = st.sampled_from((FRONTEND, CORE))
SIZES = st.one_of(st.integers(0, 400), st.integers(900, 5_000))
OPS = st.one_of(
    st.tuples(st.just("send"), SIDES, SIZES),
    st.tuples(st.just("arrive"), SIDES),
    st.tuples(st.just("arrive"), SIDES),
    st.tuples(st.just("lose"), SIDES),
    st.tuples(st.just("repeat"), SIDES),
    st.tuples(st.just("consume"), SIDES),
    st.tuples(st.just("tick"), st.floats(0, 0.7)),
    st.tuples(st.just("restart"), SIDES),
)


def run(ops: list[tuple[object, ...]]) -> World:
    world = World()
    world.tick(0)
    for name, *args in ops:
        if name in ("lose", "repeat"):
            wire = world.wires[int(str(args[0]))]
            if wire:
                wire.popleft() if name == "lose" else wire.appendleft(wire[0])
        else:
            getattr(world, str(name))(*args)
        world.check()
    return world


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(OPS, max_size=100))
def test_delivered_in_order_once_and_no_loss_unnoticed(ops: list[tuple[object, ...]]) -> None:
    world = run(ops)
    world.settle()
    for side in (FRONTEND, CORE):
        assert world.send(side, 10), "out of credit for good"
    world.settle()
    world.check()
    key = world.key(FRONTEND)
    assert key == world.key(CORE)
    for side in (FRONTEND, CORE):
        assert world.ends[side].session.is_open
        assert world.ends[side].session.drained
        assert world.ends[side].sent[key] == world.ends[1 - side].delivered[key]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(OPS, max_size=100))
def test_without_loss_or_delay_nothing_is_opened_anew(ops: list[tuple[object, ...]]) -> None:
    quick = [("tick", 0.001) if op[0] == "tick" else op for op in ops if op[0] not in ("lose", "repeat", "restart")]
    world = run(quick)
    world.settle()
    assert world.reopenings == 0


def exchange(world: World) -> None:
    while world.arrive(FRONTEND) or world.arrive(CORE):
        pass


def test_a_lost_tail_is_noticed_within_the_ack_interval() -> None:
    world = World()
    world.settle()
    assert world.send(FRONTEND, 10)
    world.wires[FRONTEND].clear()
    epoch = world.ends[CORE].session.epoch
    for _ in range(13):
        world.tick(0.1)
        exchange(world)
    assert world.ends[CORE].session.epoch == epoch + 1


def test_credit_stops_a_sender_until_its_bytes_are_worked_off() -> None:
    world = World()
    world.settle()
    assert world.send(CORE, 600)
    assert not world.send(CORE, 600)
    assert world.send(CORE, 400)
    exchange(world)
    world.tick(1.1)
    exchange(world)
    assert not world.send(CORE, 1), "received, but not worked off"
    world.consume(FRONTEND)
    world.tick(0)
    exchange(world)
    assert world.send(CORE, 600)
    world.settle()
    assert world.send(CORE, 50_000), "one larger than the window goes alone"
    assert not world.send(CORE, 1)
    world.settle()
    assert world.send(CORE, 1)


def test_a_new_frontend_is_told_apart_from_a_new_opening() -> None:
    world = World()
    world.settle()
    core = world.ends[CORE].session
    gap = Header(1, 2, 9, 0, WINDOW, core.epoch)
    assert core.receive(gap, Kind.NUMBERED, 0, world.now) is Verdict.LOST
    assert not core.is_open
    assert core.hello_due(world.now)
    again = Header(1, 2, 0, 0, WINDOW, core.epoch + 1)
    assert core.receive(again, Kind.WELCOME, 0, world.now) is Verdict.OPENED
    assert core.receive(again, Kind.WELCOME, 0, world.now) is Verdict.DROP
    other = Header(7, 2, 0, 0, WINDOW, 1)
    assert core.receive(other, Kind.WELCOME, 0, world.now) is Verdict.OPENED_BY_NEW_PEER
    assert core.receive(Header(7, 2, 0, 0, 0, 0), Kind.REFUSE, 0, world.now) is Verdict.REFUSED


def test_a_core_finds_a_new_frontend_without_being_asked() -> None:
    world = World()
    world.settle()
    world.restart(FRONTEND)
    for _ in range(20):
        world.tick(0.1)
        exchange(world)
    assert world.ends[FRONTEND].session.is_open
    assert world.ends[CORE].session.peer == world.ends[FRONTEND].incarnation


def test_what_was_seen_is_dropped() -> None:
    world = World()
    world.settle()
    assert world.send(CORE, 10)
    world.wires[CORE].append(world.wires[CORE][0])
    exchange(world)
    assert world.ends[FRONTEND].delivered[world.key(FRONTEND)] == [0]
    assert world.reopenings == 0


@pytest.mark.parametrize("speaker", [FRONTEND, CORE])
def test_a_lost_welcome_is_missed_by_either_side(speaker: int) -> None:
    world = World()
    world.settle()
    world.ends[FRONTEND].session.reopen(world.now)  # and its Welcome is lost
    for _ in range(4):
        world.now += 0.5
        if speaker == CORE:
            world.send(CORE, 10)
        else:
            world.tick(0)
        exchange(world)
    assert world.ends[CORE].session.is_open
    assert world.key(CORE) == world.key(FRONTEND)
    assert world.ends[CORE].session.epoch >= 3


def test_hellos_that_queue_up_open_one_session() -> None:
    world = World()
    for _ in range(5):
        world.tick(0.5)
    assert len(world.wires[CORE]) == 5
    exchange(world)
    assert world.ends[FRONTEND].session.epoch == 1


def test_small_messages_are_bounded_in_number() -> None:
    world = World()
    world.settle()
    sent = 0
    while world.send(CORE, 0):
        sent += 1
        assert sent <= 16_384
    assert sent == 16_384
    world.settle()
    assert world.send(CORE, 0)
