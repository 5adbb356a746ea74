//! One engine core's session over a transport: handshake, loss, acknowledgement. Requests are the registry's.

use std::time::Duration;

use bytes::Bytes;
use octavo_transport::{Incoming, Kind, Peer, Role, Session, Transport, TransportError, Verdict};
use octavo_wire::frontend::{Ack, CoreMessage, Header, Hello, Refuse, Welcome};
use octavo_wire::{Message, PROTOCOL, Record, VERSION};
use tokio::time::Instant;

use crate::EngineConfig;

/// What a message that came means to the client.
#[derive(Debug)]
pub(crate) enum Event {
    /// A session is open: everything must be sent anew.
    Opened {
        /// With whom.
        core: Core,
    },
    /// The core says something.
    Message(CoreMessage),
}

/// The core that a session opened with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Core {
    /// The first one.
    First,
    /// The same as before.
    Same,
    /// Another process than before.
    Another,
}

/// The frontend's end.
#[derive(Debug)]
pub(crate) struct Link<T> {
    transport: T,
    session: Session,
    peer: Peer,
    origin: Instant,
    /// As far as the transport knows.
    connected: bool,
    /// A body of so many bytes found no credit.
    stuck: u64,
    /// What a core must show; empty: nothing.
    key: Vec<u8>,
    /// Hellos without it.
    strangers: u64,
    /// Of the core that belongs here.
    rank: u32,
}

impl<T: Transport> Link<T> {
    pub(crate) fn new(transport: T, incarnation: u64, config: &EngineConfig) -> Self {
        let session = Session::new(Role::Frontend, incarnation, config.window);
        Self {
            transport,
            session,
            peer: Peer::new(),
            origin: Instant::now(),
            connected: false,
            stuck: 0,
            key: config.key.clone(),
            strangers: 0,
            rank: config.rank,
        }
    }

    /// Time since this link began.
    pub(crate) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Whether a session is open, its core is connected, and was heard of within `timeout`.
    pub(crate) fn hears(&self, timeout: Duration) -> bool {
        self.connected && self.session.is_open() && self.session.silence(self.now()) < timeout
    }

    /// Whether the core has received all that was sent.
    pub(crate) fn drained(&self) -> bool {
        self.session.drained()
    }

    /// Waits for a message. Cancel safe.
    pub(crate) async fn receive(&mut self) -> Result<Incoming, TransportError> {
        self.transport.receive().await
    }

    /// Takes in a message that came, and answers it as far as the session is concerned.
    pub(crate) async fn take(&mut self, incoming: Incoming) -> Option<Event> {
        let (peer, frames) = match incoming {
            Incoming::Message { peer, frames } => (peer, frames),
            Incoming::Left(peer) => {
                self.connected &= peer != self.peer;
                return None;
            }
        };
        self.connected |= peer == self.peer;
        let header = match frames.first().map(|frame| Header::decode(frame)) {
            Some(Ok(header)) => header,
            Some(Err(error)) => {
                tracing::warn!("a message of an engine has no header and is dropped: {error}");
                return None;
            }
            None => return None,
        };
        let message = decode(frames.get(1));
        if message.is_none() && header.seq == 0 {
            return None;
        }
        let bytes = frames.iter().skip(1).map(|frame| frame.len() as u64).sum();
        let now = self.now();
        match self
            .session
            .receive(&header, kind(message.as_ref()), bytes, now)
        {
            Verdict::Asked => match message {
                Some(CoreMessage::Hello(hello)) => self.asked(peer, &header, &hello).await,
                _ => None,
            },
            Verdict::Lost => {
                tracing::info!("messages of the engine are missing; opening the session anew");
                Some(self.reopen().await)
            }
            Verdict::Stranger => {
                if let Some(nudge) = self.session.nudge(&header, now) {
                    self.post(&peer, &nudge, &Ack { sent: 0 }).await;
                }
                None
            }
            Verdict::Deliver => {
                // What the registry takes in is worked off at once.
                self.session.consumed(self.session.openings(), bytes);
                message.map(Event::Message)
            }
            Verdict::Noted | Verdict::Drop | Verdict::Opened { .. } | Verdict::Refused => None,
        }
    }

    /// Opens the session anew.
    pub(crate) async fn reopen(&mut self) -> Event {
        let header = self.session.reopen(self.now());
        self.welcome(&header).await;
        Event::Opened { core: Core::Same }
    }

    /// Sends a numbered message if the credit allows. Returns whether it went.
    pub(crate) async fn send(&mut self, message: &impl Record) -> bool {
        if !self.session.may_send(self.stuck) {
            return false;
        }
        let mut body = Vec::new();
        message.encode(&mut body);
        let bytes = body.len() as u64;
        if !self.session.may_send(bytes) {
            self.stuck = bytes;
            return false;
        }
        self.stuck = 0;
        let header = self.session.number(bytes, self.now());
        let peer = self.peer.clone();
        self.post_body(&peer, &header, body).await;
        true
    }

    /// Acknowledges, if it is time.
    pub(crate) async fn keep(&mut self) {
        if self.session.ack_due(self.now()) {
            self.acknowledge().await;
        }
    }

    /// Acknowledges now.
    pub(crate) async fn acknowledge(&mut self) {
        let (header, ack) = self.session.ack(self.now());
        let peer = self.peer.clone();
        self.post(&peer, &header, &ack).await;
    }

    async fn asked(&mut self, peer: Peer, header: &Header, hello: &Hello) -> Option<Event> {
        let shown = hello
            .proof
            .as_ref()
            .map_or(&[][..], |proof| proof.0.as_slice());
        if !self.key.is_empty() && shown != self.key {
            self.strangers += 1;
            if self.strangers.is_power_of_two() {
                tracing::warn!(
                    "{} times somebody who does not know this server's key said that it is an engine, and was passed over",
                    self.strangers
                );
            }
            return None;
        }
        if let Some(reason) = misfit(hello, self.rank) {
            tracing::error!("refused engine {}: {reason}", hello.pid);
            let refusal = self.session.refusal(header);
            self.post(&peer, &refusal, &Refuse { reason }).await;
            return None;
        }
        let core = match self.session.peer() {
            0 => Core::First,
            peer if peer == header.incarnation => Core::Same,
            _ => Core::Another,
        };
        tracing::debug!("session with engine {} (process {})", hello.rank, hello.pid);
        self.peer = peer;
        self.connected = true;
        let header = self.session.open(header, self.now());
        self.welcome(&header).await;
        Some(Event::Opened { core })
    }

    async fn welcome(&mut self, header: &Header) {
        self.stuck = 0;
        let peer = self.peer.clone();
        self.post(
            &peer,
            header,
            &Welcome {
                protocol: PROTOCOL,
                version: VERSION.to_owned(),
            },
        )
        .await;
    }

    async fn post(&mut self, peer: &Peer, header: &Header, message: &impl Record) {
        let mut body = Vec::new();
        message.encode(&mut body);
        self.post_body(peer, header, body).await;
    }

    /// Hands a message to the transport. If it is lost there, the gap is noticed and the session opened anew.
    async fn post_body(&mut self, peer: &Peer, header: &Header, body: Vec<u8>) {
        let mut head = Vec::with_capacity(56);
        header.encode(&mut head);
        if let Err(error) = self
            .transport
            .send(peer, vec![Bytes::from(head), Bytes::from(body)])
            .await
        {
            tracing::debug!("message {} of the session is lost: {error}", header.seq);
        }
    }
}

/// The message, or `None` if it is not understood. It still counts, or it would be missed for ever.
fn decode(body: Option<&Bytes>) -> Option<CoreMessage> {
    match CoreMessage::decode(body.map_or(&[], |body| body)) {
        Ok(message) => Some(message),
        Err(error) => {
            tracing::warn!("a message of an engine is not understood and dropped: {error}");
            None
        }
    }
}

fn kind(message: Option<&CoreMessage>) -> Kind {
    match message {
        Some(CoreMessage::Hello(_)) => Kind::Hello,
        Some(CoreMessage::Ack(ack)) => Kind::Ack { sent: ack.sent },
        _ => Kind::Numbered,
    }
}

/// Why there can be no session with this peer.
fn misfit(hello: &Hello, rank: u32) -> Option<String> {
    if hello.role != "engine" {
        return Some(format!(
            "a peer with the role {:?} connected where engines do",
            hello.role
        ));
    }
    if hello.rank != rank {
        return Some(format!(
            "the engine has rank {}, and engines of rank {rank} connect here",
            hello.rank
        ));
    }
    if (hello.protocol, hello.version.as_str()) == (PROTOCOL, VERSION) {
        return None;
    }
    Some(format!(
        "the engine is octavo {} (protocol {}), the frontend is octavo {VERSION} (protocol {PROTOCOL}); install the \
         same version of octavo and octavo-frontend",
        hello.version, hello.protocol
    ))
}
