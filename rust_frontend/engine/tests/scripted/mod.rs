//! A scripted engine core over the in-memory transport, and what tests ask of a client.

#![allow(dead_code, reason = "each test file takes what it needs")]

use std::time::Duration;

use bytes::Bytes;
use octavo_engine::{Generate, GenerateError, Step, StepStream, Submission};
use octavo_transport::memory::{MemoryPeer, Network};
use octavo_transport::{Kind, Role, Session, Verdict};
use octavo_wire::frontend::{
    AbortRequests, AddRequest, CoreMessage, Delta, Deltas, EngineInfo, EngineReady, Finish,
    FrontendMessage, Header, Hello, SamplingParams,
};
use octavo_wire::{Message, PROTOCOL, VERSION};
use tokio::time::Instant;

pub(crate) struct Core {
    peer: MemoryPeer,
    pub(crate) session: Session,
    origin: Instant,
    pub(crate) hello: Hello,
}

impl Core {
    /// A core that has said nothing yet.
    pub(crate) fn new(network: &Network, incarnation: u64, window: u64) -> Self {
        let hello = Hello {
            protocol: PROTOCOL,
            version: VERSION.to_owned(),
            role: "engine".to_owned(),
            rank: 0,
            pid: 1,
            proof: None,
        };
        let peer = network.connect(&format!("engine-{incarnation}"));
        Self {
            peer,
            session: Session::new(Role::Core, incarnation, window),
            origin: Instant::now(),
            hello,
        }
    }

    /// A core with an open session whose engine is ready.
    pub(crate) async fn ready(network: &Network, incarnation: u64, window: u64) -> Self {
        let mut core = Self::new(network, incarnation, window);
        core.open().await;
        core.send(EngineReady { info: info() }).await;
        core
    }

    /// Asks for a session until there is one.
    pub(crate) async fn open(&mut self) {
        let openings = self.session.openings();
        let header = self.session.hello(self.origin.elapsed());
        self.post(&header, &self.hello.clone().into()).await;
        while self.session.openings() == openings {
            assert!(self.take().await.is_none(), "a message outside the session");
        }
    }

    pub(crate) async fn send(&mut self, message: impl Into<CoreMessage>) {
        let message = message.into();
        let mut body = Vec::new();
        message.encode(&mut body);
        let header = self
            .session
            .number(body.len() as u64, self.origin.elapsed());
        self.post(&header, &message).await;
    }

    /// Loses a message.
    pub(crate) fn skip(&mut self) {
        self.session.number(0, self.origin.elapsed());
    }

    pub(crate) async fn acknowledge(&mut self) {
        let (header, ack) = self.session.ack(self.origin.elapsed());
        self.post(&header, &ack.into()).await;
    }

    /// The next numbered message; acknowledged and worked off.
    pub(crate) async fn next(&mut self) -> FrontendMessage {
        loop {
            if let Some(message) = self.take().await {
                self.acknowledge().await;
                return message;
            }
        }
    }

    pub(crate) async fn request(&mut self) -> AddRequest {
        match self.next().await {
            FrontendMessage::AddRequest(request) => request,
            other => panic!("expected a request, got {other:?}"),
        }
    }

    pub(crate) async fn abort(&mut self) -> AbortRequests {
        match self.next().await {
            FrontendMessage::AbortRequests(abort) => abort,
            other => panic!("expected an abort, got {other:?}"),
        }
    }

    /// Whether nothing more comes within `time`.
    pub(crate) async fn quiet(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, async { while self.take().await.is_none() {} })
            .await
            .is_err()
    }

    /// Says that a request got tokens.
    pub(crate) async fn deliver(
        &mut self,
        request: &AddRequest,
        start: u64,
        tokens: &[i32],
        finish: Option<&str>,
    ) {
        let delta = Delta {
            finish: finish.map(Finish::new),
            ..Delta::new(request.id, request.attempt, start, tokens.to_vec())
        };
        self.send(Deltas {
            step: 1,
            items: vec![delta],
        })
        .await;
    }

    /// Takes in one message; returns it if it is numbered and new.
    pub(crate) async fn take(&mut self) -> Option<FrontendMessage> {
        let frames = self.peer.receive().await.unwrap();
        let header = Header::decode(&frames[0]).unwrap();
        let message = FrontendMessage::decode(&frames[1]).unwrap();
        let kind = match &message {
            FrontendMessage::Welcome(_) => Kind::Welcome,
            FrontendMessage::Refuse(_) => return Some(message),
            FrontendMessage::Ack(ack) => Kind::Ack { sent: ack.sent },
            _ => Kind::Numbered,
        };
        let bytes = frames[1].len() as u64;
        match self
            .session
            .receive(&header, kind, bytes, self.origin.elapsed())
        {
            Verdict::Deliver => {
                self.session.consumed(self.session.openings(), bytes);
                Some(message)
            }
            Verdict::Lost => panic!("the frontend lost a message"),
            _ => None,
        }
    }

    pub(crate) async fn post(&mut self, header: &Header, message: &CoreMessage) {
        let (mut head, mut body) = (Vec::new(), Vec::new());
        header.encode(&mut head);
        message.encode(&mut body);
        self.peer
            .send(vec![Bytes::from(head), Bytes::from(body)])
            .await
            .unwrap();
    }
}

pub(crate) fn info() -> EngineInfo {
    EngineInfo {
        model: "m".to_owned(),
        max_model_len: 128,
        vocab_size: 1000,
        num_blocks: 64,
        block_tokens: 16,
        max_num_seqs: 8,
        world_size: 1,
        dtype: "float32".to_owned(),
        startup_ms: 0,
        prefix_caching: true,
        model_state: None,
        cache_model: String::new(),
    }
}

pub(crate) fn submission(name: &str) -> Submission {
    Submission {
        name: name.to_owned(),
        prompt: vec![1, 2, 3],
        sampling: SamplingParams::new(7, 16),
        priority: 0,
        grammar: None,
        domain: None,
        rank: None,
        session: None,
        pooling: None,
        embeds: None,
    }
}

/// Waits until the client says so.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}

/// Reads a stream to its end.
pub(crate) async fn read_all(stream: &mut StepStream) -> Result<(Vec<i32>, String), GenerateError> {
    let mut tokens = Vec::new();
    while let Some(step) = stream.next().await {
        let Step {
            start,
            tokens: new,
            finish,
            ..
        } = step?;
        assert_eq!(start, tokens.len(), "tokens lost or repeated");
        tokens.extend(new);
        if let Some(finish) = finish {
            assert_eq!(stream.next().await, None);
            return Ok((tokens, finish.reason));
        }
    }
    panic!("the stream ended without a finish");
}

/// The tokens of the next step.
pub(crate) async fn read_step(stream: &mut StepStream) -> Vec<i32> {
    stream.next().await.unwrap().unwrap().tokens
}

pub(crate) fn submit(client: &impl Generate, name: &str) -> StepStream {
    client.submit(submission(name)).unwrap()
}
