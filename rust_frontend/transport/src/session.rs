//! A session between a frontend and a core: numbers what goes out, notices what did not come in, keeps both within
//! the bytes that the other side can hold.
//!
//! A pure state machine: no I/O, no clock. `python/engine_core/session.py` is its twin. Whoever owns one asks it for the
//! header of each message it sends, shows it each message that comes, and does what the verdict says. Times are durations
//! since any fixed moment of the owner's.

use std::time::Duration;

use octavo_wire::frontend::{Ack, Header};

/// A core asks for a session this often.
pub const HELLO_INTERVAL: Duration = Duration::from_millis(500);
/// Each side is heard of at least this often.
pub const ACK_INTERVAL: Duration = Duration::from_secs(1);
/// A frontend gives its Welcome this long to arrive before it takes it for lost.
const WELCOME_GRACE: Duration = Duration::from_millis(400);
/// A stranger is told this often that it is one.
const NUDGE_INTERVAL: Duration = Duration::from_millis(200);
/// Numbered messages under way at most, however small: queues are bounded in messages too.
const MAX_UNDERWAY: u64 = 16_384;

/// Which end this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Opens sessions, and counts the openings.
    Frontend,
    /// Asks for them.
    Core,
}

/// What a message is to the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A core asks for a session.
    Hello,
    /// The frontend opens one.
    Welcome,
    /// The frontend will never open one.
    Refuse,
    /// News of what was sent and received.
    Ack {
        /// The highest number that its sender has sent.
        sent: u64,
    },
    /// Anything else.
    Numbered,
}

/// What to do with a message that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is the next one: hand it on, and call [`Session::consumed`] when it is worked off.
    Deliver,
    /// It is of the session and says no more than its header, which is taken in.
    Noted,
    /// It was seen before, or belongs to another session: drop it.
    Drop,
    /// Frontend: a core asks for a session; if its versions fit, [`Session::open`] one and send everything anew.
    Asked,
    /// Core: the session is open; both sides count from 1.
    Opened {
        /// The frontend is another process than the one before.
        new_peer: bool,
    },
    /// Core: there will be no session.
    Refused,
    /// Messages are missing. A frontend [`Session::reopen`]s and sends everything anew; a core's next step is Hello.
    Lost,
    /// Frontend: the sender takes this for a frontend that is gone; [`Session::nudge`] it.
    Stranger,
}

/// One end of a session.
#[derive(Debug, Clone)]
pub struct Session {
    role: Role,
    incarnation: u64,
    /// Bytes that this end holds for its owner at most.
    window: u64,
    open: bool,
    /// The other end's incarnation; 0: there was none.
    peer: u64,
    epoch: u64,
    /// Openings that this end has seen, whoever the other end was.
    openings: u64,
    outgoing: Outgoing,
    incoming: Incoming,
    opened_at: Duration,
    heard_at: Duration,
    spoke_at: Duration,
    asked_at: Option<Duration>,
    nudged_at: Option<Duration>,
}

/// What was sent in this epoch.
#[derive(Debug, Clone, Default)]
struct Outgoing {
    sent: u64,
    acked: u64,
    bytes: u64,
    /// `bytes` may grow up to this.
    credit: u64,
    /// What the other end holds at most.
    window: u64,
}

/// What came in this epoch.
#[derive(Debug, Clone, Default)]
struct Incoming {
    received: u64,
    bytes: u64,
    consumed: u64,
    /// The `received` and the credit of the latest header sent.
    told: u64,
    granted: u64,
}

impl Session {
    /// Starts without a session. `window` bytes are held for the owner at most, plus one message.
    #[must_use]
    pub fn new(role: Role, incarnation: u64, window: u64) -> Self {
        Self {
            role,
            incarnation,
            window,
            open: false,
            peer: 0,
            epoch: 0,
            openings: 0,
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            opened_at: Duration::ZERO,
            heard_at: Duration::ZERO,
            spoke_at: Duration::ZERO,
            asked_at: None,
            nudged_at: None,
        }
    }

    /// Whether numbered messages may go, credit permitting.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Which opening of the other end this is; 0 before the first.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How often a session has opened here, with whomever; what [`Session::consumed`] wants back.
    #[must_use]
    pub fn openings(&self) -> u64 {
        self.openings
    }

    /// The other end's incarnation; 0 before the first opening.
    #[must_use]
    pub fn peer(&self) -> u64 {
        self.peer
    }

    /// Whether everything sent has been received.
    #[must_use]
    pub fn drained(&self) -> bool {
        self.outgoing.acked == self.outgoing.sent
    }

    /// Bytes that have come and are not worked off.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.incoming.bytes - self.incoming.consumed
    }

    /// How long nothing of the session has come.
    #[must_use]
    pub fn silence(&self, now: Duration) -> Duration {
        now.saturating_sub(self.heard_at)
    }

    /// Whether a numbered message of so many bytes may go now. One larger than the other end's window may go when that
    /// end has worked off everything else.
    #[must_use]
    pub fn may_send(&self, bytes: u64) -> bool {
        let out = &self.outgoing;
        self.open
            && out.sent - out.acked < MAX_UNDERWAY
            && (out.bytes.saturating_add(bytes) <= out.credit
                || out.bytes.saturating_add(out.window) <= out.credit)
    }

    /// Counts a numbered message of so many bytes and returns its header.
    pub fn number(&mut self, bytes: u64, now: Duration) -> Header {
        self.outgoing.sent += 1;
        self.outgoing.bytes = self.outgoing.bytes.saturating_add(bytes);
        Header {
            seq: self.outgoing.sent,
            ..self.header(now)
        }
    }

    /// Whether an Ack must go: the other end may wait for credit, or has not been spoken to for long.
    #[must_use]
    pub fn ack_due(&self, now: Duration) -> bool {
        let new_credit = self.credit() - self.incoming.granted;
        self.open
            && (now.saturating_sub(self.spoke_at) >= ACK_INTERVAL
                || (new_credit > 0 && new_credit >= self.window / 2)
                || self.incoming.received - self.incoming.told >= MAX_UNDERWAY / 4)
    }

    /// Returns an Ack to send, due or not.
    pub fn ack(&mut self, now: Duration) -> (Header, Ack) {
        (
            self.header(now),
            Ack {
                sent: self.outgoing.sent,
            },
        )
    }

    /// Core: whether a Hello must go.
    #[must_use]
    pub fn hello_due(&self, now: Duration) -> bool {
        self.role == Role::Core
            && !self.open
            && self
                .asked_at
                .is_none_or(|at| now.saturating_sub(at) >= HELLO_INTERVAL)
    }

    /// Core: returns the header of a Hello.
    pub fn hello(&mut self, now: Duration) -> Header {
        self.asked_at = Some(now);
        Header {
            incarnation: self.incarnation,
            session: 0,
            seq: 0,
            ack: 0,
            credit: self.window,
            epoch: self.epoch,
        }
    }

    /// Frontend: opens a session with the sender of a Hello and returns the Welcome's header.
    pub fn open(&mut self, hello: &Header, now: Duration) -> Header {
        self.peer = hello.incarnation;
        self.outgoing.window = hello.credit;
        self.heard_at = now;
        self.reopen(now)
    }

    /// Frontend: opens the session anew with the same core and returns the Welcome's header.
    pub fn reopen(&mut self, now: Duration) -> Header {
        self.begin(self.epoch + 1, self.outgoing.window, now);
        self.header(now)
    }

    /// Frontend: returns the header of a Refuse for the sender of a Hello.
    #[must_use]
    pub fn refusal(&self, hello: &Header) -> Header {
        self.unsolicited(hello.incarnation)
    }

    /// Frontend: returns the header of an Ack that shows a stranger who is here now, unless it was told just now.
    pub fn nudge(&mut self, stranger: &Header, now: Duration) -> Option<Header> {
        if self
            .nudged_at
            .is_some_and(|at| now.saturating_sub(at) < NUDGE_INTERVAL)
        {
            return None;
        }
        self.nudged_at = Some(now);
        Some(self.unsolicited(stranger.incarnation))
    }

    /// Gives back so many bytes that were delivered when [`Session::openings`] was `opening`.
    pub fn consumed(&mut self, opening: u64, bytes: u64) {
        if opening == self.openings {
            self.incoming.consumed += bytes;
        }
    }

    /// Takes in a message that came, of so many bytes of body and aux frames, and says what to do with it.
    pub fn receive(&mut self, header: &Header, kind: Kind, bytes: u64, now: Duration) -> Verdict {
        match (self.role, kind) {
            (Role::Frontend, Kind::Hello) => self.receive_hello(header, now),
            (Role::Frontend, Kind::Welcome | Kind::Refuse) | (Role::Core, Kind::Hello) => {
                Verdict::Drop
            }
            (Role::Frontend, _) if header.session != self.incarnation => Verdict::Stranger,
            (Role::Core, _) if header.session != self.incarnation => Verdict::Drop,
            (Role::Core, Kind::Welcome) => self.receive_welcome(header, now),
            (Role::Core, Kind::Refuse) => Verdict::Refused,
            (_, Kind::Ack { .. } | Kind::Numbered) => self.receive_inside(header, kind, bytes, now),
        }
    }

    /// Panics if what it counts does not fit together; for tests.
    pub fn check(&self) {
        let (out, into) = (&self.outgoing, &self.incoming);
        assert!(
            out.acked <= out.sent,
            "acknowledged {} of {}",
            out.acked,
            out.sent
        );
        assert!(
            into.consumed <= into.bytes,
            "worked off {} of {} bytes",
            into.consumed,
            into.bytes
        );
        assert!(
            into.told <= into.received,
            "told of {}, received {}",
            into.told,
            into.received
        );
        assert!(
            into.granted <= self.credit(),
            "granted {} of {}",
            into.granted,
            self.credit()
        );
        assert!(!self.open || self.epoch > 0, "open without an opening");
    }

    fn receive_hello(&self, header: &Header, now: Duration) -> Verdict {
        let answered = self.open && header.incarnation == self.peer && header.epoch < self.epoch;
        if answered && now.saturating_sub(self.opened_at) < WELCOME_GRACE {
            return Verdict::Drop;
        }
        Verdict::Asked
    }

    fn receive_welcome(&mut self, header: &Header, now: Duration) -> Verdict {
        let same = header.incarnation == self.peer;
        if same && header.epoch <= self.epoch {
            return Verdict::Drop;
        }
        let new_peer = !same && self.peer != 0;
        self.peer = header.incarnation;
        self.heard_at = now;
        self.begin(header.epoch, header.credit, now);
        Verdict::Opened { new_peer }
    }

    fn receive_inside(
        &mut self,
        header: &Header,
        kind: Kind,
        bytes: u64,
        now: Duration,
    ) -> Verdict {
        if !self.open {
            return Verdict::Drop;
        }
        if header.incarnation != self.peer {
            // A core has one frontend: another one that answers has taken its place. A frontend's late cores are late.
            return if self.role == Role::Core {
                self.lose()
            } else {
                Verdict::Drop
            };
        }
        self.heard_at = now;
        if header.epoch != self.epoch {
            return self.receive_other_epoch(header, now);
        }
        let out = &mut self.outgoing;
        out.acked = out.acked.max(header.ack.min(out.sent));
        out.credit = out.credit.max(header.credit);
        let next = self.incoming.received + 1;
        match kind {
            Kind::Ack { sent } if sent < next => Verdict::Noted,
            Kind::Numbered if header.seq < next => Verdict::Drop,
            Kind::Numbered if header.seq == next => {
                self.incoming.received = next;
                self.incoming.bytes = self.incoming.bytes.saturating_add(bytes);
                Verdict::Deliver
            }
            _ => self.lose(),
        }
    }

    fn receive_other_epoch(&mut self, header: &Header, now: Duration) -> Verdict {
        let welcome_lost = match self.role {
            Role::Core => header.epoch > self.epoch,
            Role::Frontend => now.saturating_sub(self.opened_at) >= WELCOME_GRACE,
        };
        if welcome_lost {
            self.lose()
        } else {
            Verdict::Drop
        }
    }

    fn lose(&mut self) -> Verdict {
        if self.role == Role::Core {
            self.open = false;
            self.asked_at = None;
        }
        Verdict::Lost
    }

    fn begin(&mut self, epoch: u64, window: u64, now: Duration) {
        self.open = true;
        self.epoch = epoch;
        self.openings += 1;
        self.outgoing = Outgoing {
            credit: window,
            window,
            ..Outgoing::default()
        };
        // The opening's own header grants the window, so that only what is worked off later is news.
        self.incoming = Incoming {
            granted: self.window,
            ..Incoming::default()
        };
        self.opened_at = now;
        self.spoke_at = now;
    }

    fn credit(&self) -> u64 {
        self.incoming.consumed.saturating_add(self.window)
    }

    /// The header of a message that is not numbered; its sending is what was told and granted.
    fn header(&mut self, now: Duration) -> Header {
        self.spoke_at = now;
        self.incoming.told = self.incoming.received;
        self.incoming.granted = self.credit();
        Header {
            incarnation: self.incarnation,
            session: self.peer,
            seq: 0,
            ack: self.incoming.received,
            credit: self.incoming.granted,
            epoch: self.epoch,
        }
    }

    /// The header of a message outside any session.
    fn unsolicited(&self, to: u64) -> Header {
        Header {
            incarnation: self.incarnation,
            session: to,
            seq: 0,
            ack: 0,
            credit: 0,
            epoch: 0,
        }
    }
}
