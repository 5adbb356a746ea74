//! Pairs of sessions over channels that lose and repeat messages, with restarts of either end.

#![allow(clippy::panic)]

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use octavo_transport::session::{Kind, Role, Session, Verdict};
use octavo_wire::frontend::Header;
use proptest::prelude::*;

const WINDOW: u64 = 1_000;
const FRONTEND: usize = 0;
const CORE: usize = 1;

#[derive(Debug, Clone, Copy)]
struct Packet {
    header: Header,
    kind: Kind,
    bytes: u64,
    payload: u64,
}

/// Which session a payload belonged to: both incarnations and the epoch.
type Key = (u64, u64, u64);

#[derive(Debug)]
struct End {
    session: Session,
    incarnation: u64,
    inbox: VecDeque<(u64, u64)>,
    sent: BTreeMap<Key, Vec<u64>>,
    delivered: BTreeMap<Key, Vec<u64>>,
}

impl End {
    fn new(side: usize, incarnation: u64) -> Self {
        let role = if side == FRONTEND {
            Role::Frontend
        } else {
            Role::Core
        };
        Self {
            session: Session::new(role, incarnation, WINDOW),
            incarnation,
            inbox: VecDeque::new(),
            sent: BTreeMap::new(),
            delivered: BTreeMap::new(),
        }
    }

    fn key(&self, side: usize) -> Key {
        let (mine, peer, epoch) = (self.incarnation, self.session.peer(), self.session.epoch());
        if side == FRONTEND {
            (mine, peer, epoch)
        } else {
            (peer, mine, epoch)
        }
    }
}

/// Two ends, a lossy channel in each direction and a clock.
struct World {
    ends: [End; 2],
    /// `wires[s]` carries what side `s` sent.
    wires: [VecDeque<Packet>; 2],
    now: Duration,
    next_incarnation: u64,
    next_payload: u64,
    losses: u64,
    reopenings: u64,
}

impl World {
    fn new() -> Self {
        Self {
            ends: [End::new(FRONTEND, 1), End::new(CORE, 2)],
            wires: [VecDeque::new(), VecDeque::new()],
            now: Duration::ZERO,
            next_incarnation: 3,
            next_payload: 0,
            losses: 0,
            reopenings: 0,
        }
    }

    fn post(&mut self, side: usize, header: Header, kind: Kind) {
        self.wires[side].push_back(Packet {
            header,
            kind,
            bytes: 0,
            payload: 0,
        });
    }

    fn send(&mut self, side: usize, bytes: u64) -> bool {
        let (now, payload) = (self.now, self.next_payload);
        let end = &mut self.ends[side];
        if !end.session.may_send(bytes) {
            return false;
        }
        self.next_payload += 1;
        let header = end.session.number(bytes, now);
        let key = end.key(side);
        end.sent.entry(key).or_default().push(payload);
        self.wires[side].push_back(Packet {
            header,
            kind: Kind::Numbered,
            bytes,
            payload,
        });
        true
    }

    fn arrive(&mut self, from: usize) -> bool {
        let Some(packet) = self.wires[from].pop_front() else {
            return false;
        };
        let side = 1 - from;
        let now = self.now;
        let end = &mut self.ends[side];
        match end
            .session
            .receive(&packet.header, packet.kind, packet.bytes, now)
        {
            Verdict::Deliver => {
                let (opening, key) = (end.session.openings(), end.key(side));
                end.inbox.push_back((opening, packet.bytes));
                end.delivered.entry(key).or_default().push(packet.payload);
            }
            Verdict::Asked => {
                let welcome = end.session.open(&packet.header, now);
                self.post(side, welcome, Kind::Welcome);
            }
            Verdict::Lost if side == FRONTEND => {
                self.reopenings += 1;
                let welcome = self.ends[side].session.reopen(now);
                self.post(side, welcome, Kind::Welcome);
            }
            Verdict::Stranger => {
                if let Some(header) = end.session.nudge(&packet.header, now) {
                    self.post(side, header, Kind::Ack { sent: 0 });
                }
            }
            Verdict::Lost => self.reopenings += 1,
            Verdict::Noted | Verdict::Drop | Verdict::Opened { .. } => {}
            Verdict::Refused => panic!("nobody refuses here"),
        }
        true
    }

    fn consume(&mut self, side: usize) {
        let end = &mut self.ends[side];
        if let Some((opening, bytes)) = end.inbox.pop_front() {
            end.session.consumed(opening, bytes);
        }
    }

    fn tick(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        let now = self.now;
        for side in [FRONTEND, CORE] {
            let session = &mut self.ends[side].session;
            if session.hello_due(now) {
                let header = session.hello(now);
                self.post(side, header, Kind::Hello);
            } else if session.ack_due(now) {
                let (header, ack) = session.ack(now);
                self.post(side, header, Kind::Ack { sent: ack.sent });
            }
        }
    }

    /// The process dies; what it sent last may still be under way.
    fn restart(&mut self, side: usize) {
        let mut fresh = End::new(side, self.next_incarnation);
        self.next_incarnation += 1;
        fresh.sent = std::mem::take(&mut self.ends[side].sent);
        fresh.delivered = std::mem::take(&mut self.ends[side].delivered);
        self.ends[side] = fresh;
        self.wires[1 - side].clear();
        self.losses += 1;
    }

    fn settle(&mut self) {
        for _ in 0..60 {
            self.tick(100);
            while self.arrive(FRONTEND) || self.arrive(CORE) {
                self.consume(FRONTEND);
                self.consume(CORE);
            }
            while !self.ends[FRONTEND].inbox.is_empty() || !self.ends[CORE].inbox.is_empty() {
                self.consume(FRONTEND);
                self.consume(CORE);
            }
        }
    }

    fn check(&self) {
        for side in [FRONTEND, CORE] {
            self.ends[side].session.check();
            // One message larger than the window may be held besides.
            assert!(
                self.ends[side].session.held() <= WINDOW.max(5_000),
                "more is held than was granted"
            );
            for (key, got) in &self.ends[side].delivered {
                let empty = Vec::new();
                let sent = self.ends[1 - side].sent.get(key).unwrap_or(&empty);
                assert!(
                    sent.starts_with(got),
                    "{key:?}: sent {sent:?}, delivered {got:?}"
                );
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Op {
    Send(usize, u64),
    Arrive(usize),
    Lose(usize),
    Repeat(usize),
    Consume(usize),
    Tick(u64),
    Restart(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let side = 0..2_usize;
    prop_oneof![
        8 => (side.clone(), prop_oneof![9 => 0..400_u64, 1 => 900..5_000_u64]).prop_map(|(s, b)| Op::Send(s, b)),
        10 => side.clone().prop_map(Op::Arrive),
        2 => side.clone().prop_map(Op::Lose),
        1 => side.clone().prop_map(Op::Repeat),
        5 => side.clone().prop_map(Op::Consume),
        4 => (0..700_u64).prop_map(Op::Tick),
        1 => side.prop_map(Op::Restart),
    ]
}

fn run(ops: Vec<Op>) -> World {
    let mut world = World::new();
    world.tick(0);
    for op in ops {
        match op {
            Op::Send(side, bytes) => drop(world.send(side, bytes)),
            Op::Arrive(from) => drop(world.arrive(from)),
            Op::Lose(from) => {
                if world.wires[from].pop_front().is_some() {
                    world.losses += 1;
                }
            }
            Op::Repeat(from) => {
                if let Some(&first) = world.wires[from].front() {
                    world.wires[from].push_front(first);
                }
            }
            Op::Consume(side) => world.consume(side),
            Op::Tick(millis) => world.tick(millis),
            Op::Restart(side) => world.restart(side),
        }
        world.check();
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happened: in order, once each, within the window; and when the channel holds, everything of the session
    /// that is open then arrives: a loss, be it of the last message, does not go unnoticed.
    #[test]
    fn delivered_in_order_once_and_no_loss_unnoticed(ops in prop::collection::vec(op(), 0..120)) {
        let mut world = run(ops);
        world.settle();
        for side in [FRONTEND, CORE] {
            assert!(world.send(side, 10), "out of credit for good");
        }
        world.settle();
        world.check();
        assert!(world.ends[0].session.is_open() && world.ends[1].session.is_open());
        let key = world.ends[FRONTEND].key(FRONTEND);
        assert_eq!(key, world.ends[CORE].key(CORE));
        for side in [FRONTEND, CORE] {
            assert_eq!(world.ends[side].sent.get(&key), world.ends[1 - side].delivered.get(&key));
            assert!(world.ends[side].session.drained());
        }
    }

    /// Without loss or delay a session is opened once: the ends do not chase each other.
    #[test]
    fn without_loss_nothing_is_opened_anew(ops in prop::collection::vec(op(), 0..120)) {
        let quick = |op| if let Op::Tick(millis) = op { Op::Tick(millis / 250) } else { op };
        let ops = ops.into_iter().filter(|op| !matches!(op, Op::Lose(_) | Op::Repeat(_) | Op::Restart(_))).map(quick).collect();
        let mut world = run(ops);
        world.settle();
        assert_eq!(world.reopenings, 0);
    }
}

#[test]
fn a_lost_tail_is_noticed_within_the_ack_interval() {
    let mut world = World::new();
    world.settle();
    assert!(world.send(CORE, 10));
    world.wires[CORE].clear();
    let epoch = world.ends[FRONTEND].session.epoch();
    for _ in 0..11 {
        world.tick(100);
        while world.arrive(FRONTEND) || world.arrive(CORE) {}
    }
    assert_eq!(world.ends[FRONTEND].session.epoch(), epoch + 1);
}

#[test]
fn credit_stops_a_sender_until_its_bytes_are_worked_off() {
    let mut world = World::new();
    world.settle();
    assert!(world.send(CORE, 600));
    assert!(!world.send(CORE, 600), "beyond the window");
    assert!(world.send(CORE, 400));
    while world.arrive(CORE) || world.arrive(FRONTEND) {}
    world.tick(1_100);
    while world.arrive(CORE) || world.arrive(FRONTEND) {}
    assert!(!world.send(CORE, 1), "received, but not worked off");
    world.consume(FRONTEND);
    world.tick(0);
    while world.arrive(CORE) || world.arrive(FRONTEND) {}
    assert!(world.send(CORE, 600));
    world.settle();
    assert!(
        world.send(CORE, 50_000),
        "one larger than the window goes alone"
    );
    assert!(!world.send(CORE, 1));
    world.settle();
    assert!(world.send(CORE, 1));
}

#[test]
fn small_messages_are_bounded_in_number() {
    let mut world = World::new();
    world.settle();
    let mut sent = 0;
    while world.send(CORE, 0) {
        sent += 1;
        assert!(sent <= 16_384);
    }
    assert_eq!(sent, 16_384);
    world.settle();
    assert!(world.send(CORE, 0));
}

#[test]
fn hellos_that_queue_up_open_one_session() {
    let mut world = World::new();
    for _ in 0..5 {
        world.tick(500);
    }
    while world.arrive(CORE) || world.arrive(FRONTEND) {}
    assert_eq!(world.ends[FRONTEND].session.epoch(), 1);
}

#[test]
fn a_lost_welcome_is_missed_by_either_side() {
    for speaker in [FRONTEND, CORE] {
        let mut world = World::new();
        world.settle();
        let now = world.now;
        // And its Welcome is lost.
        world.ends[FRONTEND].session.reopen(now);
        for _ in 0..4 {
            world.now += Duration::from_millis(500);
            if speaker == CORE {
                world.send(CORE, 10);
            } else {
                world.tick(0);
            }
            while world.arrive(CORE) || world.arrive(FRONTEND) {}
        }
        assert!(world.ends[CORE].session.is_open());
        assert!(world.ends[CORE].session.epoch() >= 3);
        assert_eq!(
            world.ends[CORE].key(CORE),
            world.ends[FRONTEND].key(FRONTEND)
        );
    }
}

#[test]
fn a_core_finds_a_new_frontend_without_being_asked() {
    let mut world = World::new();
    world.settle();
    world.restart(FRONTEND);
    for _ in 0..20 {
        world.tick(100);
        while world.arrive(FRONTEND) || world.arrive(CORE) {}
    }
    assert!(world.ends[FRONTEND].session.is_open());
    assert_eq!(
        world.ends[CORE].session.peer(),
        world.ends[FRONTEND].incarnation
    );
}
