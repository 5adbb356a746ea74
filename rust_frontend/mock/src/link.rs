//! A core's end of the session, over one connection after the other.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use octavo_transport::{Kind, Role, Session, Verdict};
use octavo_wire::frontend::{Deltas, FrontendMessage, Goodbye, Header, Hello};
use octavo_wire::{Message, PROTOCOL, Record, VERSION};
use tokio::time::Instant;

use crate::socket::Dealer;

/// Bytes of messages that wait for the engine at most.
const WINDOW: u64 = 32 << 20;

/// What came over the link.
#[allow(
    clippy::large_enum_variant,
    reason = "passed on at once, never kept in numbers"
)]
#[derive(Debug)]
pub(crate) enum Event {
    /// A session is open; the status must be said.
    Opened { new_peer: bool },
    /// A numbered message.
    Message(FrontendMessage),
    /// The frontend will not have this engine, and says why.
    Refused(String),
    /// The connection has ended.
    Left,
}

/// The session and what waits to be sent in it.
pub(crate) struct Link {
    endpoint: String,
    name: String,
    session: Session,
    origin: Instant,
    hello: Vec<u8>,
    dealer: Option<Dealer>,
    /// Bodies, in order.
    outbox: VecDeque<Vec<u8>>,
    /// Of the last deltas: the next are about as long.
    length: usize,
}

impl Link {
    pub(crate) fn new(endpoint: &str, incarnation: u64) -> Self {
        let hello = Hello {
            protocol: PROTOCOL,
            version: VERSION.to_owned(),
            role: "engine".to_owned(),
            rank: 0,
            pid: std::process::id(),
            proof: None,
        };
        Self {
            endpoint: endpoint.to_owned(),
            name: format!("engine-0-{incarnation:016x}"),
            session: Session::new(Role::Core, incarnation, WINDOW),
            origin: Instant::now(),
            hello: encoded(&hello),
            dealer: None,
            outbox: VecDeque::new(),
            length: 0,
        }
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.session.is_open() && self.dealer.is_some()
    }

    /// Whether deltas may go: nothing waits before them, and there is credit for as many bytes as the last had.
    pub(crate) fn is_clear(&self) -> bool {
        self.is_open() && self.outbox.is_empty() && self.session.may_send(self.length as u64)
    }

    /// Connects if there is no connection, however long that takes.
    pub(crate) async fn connect(&mut self) {
        if self.dealer.is_some() {
            return;
        }
        let mut dealer = Dealer::connect(&self.endpoint, &self.name).await;
        if self.session.is_open() {
            // A frontend that is another process says so.
            let (header, ack) = self.session.ack(self.now());
            dealer.send(head(&header), encoded(&ack)).await;
        }
        self.dealer = Some(dealer);
    }

    /// Waits for what comes next; for ever without a connection. Cancel safe.
    pub(crate) async fn receive(&mut self) -> Option<Event> {
        let Some(dealer) = &mut self.dealer else {
            return std::future::pending().await;
        };
        match dealer.receive().await {
            Some(frames) => self.take(&frames),
            None => {
                self.dealer = None;
                Some(Event::Left)
            }
        }
    }

    /// Keeps the session: Hello, acknowledgements, what waits for credit.
    pub(crate) async fn keep(&mut self) {
        let now = self.now();
        if self.dealer.is_some() && self.session.hello_due(now) {
            let header = self.session.hello(now);
            self.post(&header, self.hello.clone()).await;
        }
        if self.session.ack_due(now) {
            let (header, ack) = self.session.ack(now);
            self.post(&header, encoded(&ack)).await;
        }
        self.flush().await;
    }

    /// Sends a message as soon as there is credit. Dropped when a session opens.
    pub(crate) async fn send(&mut self, message: &impl Record) {
        self.outbox.push_back(encoded(message));
        self.flush().await;
    }

    /// Sends a step's deltas, or counts them only, so that they are missed. Without a connection they are lost like any
    /// other message.
    pub(crate) async fn deliver(&mut self, deltas: &Deltas, lose: bool) {
        let mut body = Vec::with_capacity(self.length + 64);
        deltas.encode(&mut body);
        self.length = body.len();
        if !self.session.is_open() {
            return;
        }
        if lose {
            tracing::info!("step {}: its message is lost", deltas.step);
            self.session.number(body.len() as u64, self.now());
            return;
        }
        self.outbox.push_back(body);
        self.flush().await;
    }

    /// Says goodbye. [`Link::drained`] tells when everything has arrived.
    pub(crate) async fn goodbye(&mut self, reason: &str) {
        let reason = reason.to_owned();
        self.send(&Goodbye { reason }).await;
    }

    pub(crate) fn drained(&self) -> bool {
        !self.is_open() || (self.outbox.is_empty() && self.session.drained())
    }

    async fn flush(&mut self) {
        while let Some(body) = self.outbox.front() {
            let bytes = body.len() as u64;
            if !self.session.may_send(bytes) {
                return;
            }
            let header = self.session.number(bytes, self.now());
            if let Some(body) = self.outbox.pop_front() {
                self.post(&header, body).await;
            }
        }
    }

    async fn post(&mut self, header: &Header, body: Vec<u8>) {
        if let Some(dealer) = &mut self.dealer {
            dealer.send(head(header), body).await;
        }
    }

    fn take(&mut self, frames: &[Bytes]) -> Option<Event> {
        let header = Header::decode(frames.first()?).ok()?;
        let message = FrontendMessage::decode(frames.get(1)?).ok();
        if message.is_none() && header.seq == 0 {
            return None;
        }
        let kind = match &message {
            Some(FrontendMessage::Welcome(_)) => Kind::Welcome,
            Some(FrontendMessage::Refuse(_)) => Kind::Refuse,
            Some(FrontendMessage::Ack(ack)) => Kind::Ack { sent: ack.sent },
            _ => Kind::Numbered,
        };
        let bytes = frames.iter().skip(1).map(|frame| frame.len() as u64).sum();
        match self.session.receive(&header, kind, bytes, self.now()) {
            Verdict::Deliver => {
                // The engine takes it in at once.
                self.session.consumed(self.session.openings(), bytes);
                message.map(Event::Message)
            }
            Verdict::Opened { new_peer } => {
                self.outbox.clear();
                Some(Event::Opened { new_peer })
            }
            Verdict::Refused => match message {
                Some(FrontendMessage::Refuse(refuse)) => Some(Event::Refused(refuse.reason)),
                _ => None,
            },
            _ => None,
        }
    }
}

fn encoded(message: &impl Record) -> Vec<u8> {
    let mut body = Vec::new();
    message.encode(&mut body);
    body
}

fn head(header: &Header) -> Vec<u8> {
    let mut head = Vec::with_capacity(56);
    header.encode(&mut head);
    head
}
