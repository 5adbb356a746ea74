//! The link over real sockets between real processes: cores are killed, stopped and restarted while messages flow.
//!
//! The other end is Python with libzmq (tests/conformance/peer.py). OCTAVO_PYTHON names its interpreter; .venv's is
//! the default. Nothing may be lost, repeated or grow without bound.

#![allow(clippy::unwrap_used, clippy::panic)]

mod peer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use octavo_engine::{EngineClient, Generate};
use octavo_transport::{Incoming, Kind, Role, Session, Transport, Verdict, ZmqRouter};
use octavo_wire::frontend::{AddRequest, CoreMessage, Header, SamplingParams, Welcome};
use octavo_wire::{Message, Record, Tokens};
use peer::{PythonPeer, client, read, resident, submission, token, until};
use tokio::task::JoinSet;
use tokio::time::Instant;

const KILLS: usize = 100;
const STREAMS: i32 = 8;
const SMALL_WINDOW: u64 = 64 << 10;

/// Submits one request after the other until told to stop, and checks all tokens. Returns the number of requests.
async fn talk(
    client: Arc<EngineClient>,
    lane: i32,
    stop: Arc<AtomicBool>,
    tokens: Arc<AtomicUsize>,
) -> usize {
    let mut requests = 0;
    while !stop.load(Ordering::Relaxed) {
        let first = lane * 1000 + i32::try_from(requests).unwrap();
        let prompt = (first..first + 1 + 37 * lane).collect();
        let max_tokens = 50 + 40 * u64::try_from(lane).unwrap();
        let mut stream = client
            .submit(submission("gen", prompt, max_tokens))
            .unwrap();
        let count = read(&mut stream, first, |new| {
            tokens.fetch_add(new, Ordering::Relaxed);
        })
        .await;
        assert_eq!(count, Ok(usize::try_from(max_tokens).unwrap()));
        requests += 1;
    }
    requests
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_core_killed_a_hundred_times_loses_and_repeats_nothing() {
    let mut peer = PythonPeer::new();
    peer.start();
    let client = client(&peer, |config| config.window = SMALL_WINDOW).await;
    let (stop, tokens) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let mut talks = JoinSet::new();
    for lane in 1..=STREAMS {
        talks.spawn(talk(
            Arc::clone(&client),
            lane,
            Arc::clone(&stop),
            Arc::clone(&tokens),
        ));
    }
    let began = Instant::now();
    for kill in 0..KILLS {
        // Now before the first token, now in the middle of many.
        let more = tokens.load(Ordering::Relaxed) + (kill * 7919) % 300;
        until("tokens flow", || {
            tokens.load(Ordering::Relaxed) > more || !talks.is_empty() && kill % 10 == 9
        })
        .await;
        peer.signal("kill");
        peer.start();
        assert!(
            began.elapsed() < Duration::from_secs(90),
            "{kill} kills took too long"
        );
    }
    until("tokens flow", || client.ready()).await;
    stop.store(true, Ordering::Relaxed);
    let requests: usize = talks.join_all().await.into_iter().sum();
    println!(
        "{requests} requests, {} tokens, {:?}",
        tokens.load(Ordering::Relaxed),
        began.elapsed()
    );
    assert!(requests >= usize::try_from(STREAMS).unwrap());
    assert_eq!(client.open_requests(), 0);
    let restarts = usize::try_from(client.engine_restarts()).unwrap();
    assert!(
        (KILLS / 2..=KILLS).contains(&restarts),
        "{restarts} restarts seen"
    );
    client.shutdown(Duration::ZERO).await;
    peer.signal("kill");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_core_is_noticed_at_once() {
    let mut peer = PythonPeer::new();
    peer.start();
    let client = client(&peer, |_| {}).await;
    peer.signal("kill");
    let killed = Instant::now();
    until("not ready", || !client.ready()).await;
    assert!(
        killed.elapsed() < Duration::from_secs(5),
        "{:?}",
        killed.elapsed()
    );
    assert!(client.alive());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frontend_that_comes_back_finds_its_core() {
    let mut peer = PythonPeer::new();
    let pid = peer.start();
    for round in 0..10 {
        let client = client(&peer, |_| {}).await;
        let mut lost = client
            .submit(submission("gen", vec![5, 6], 1_000_000))
            .unwrap();
        assert!(lost.next().await.unwrap().is_ok());
        let mut stream = client.submit(submission("gen", vec![9], 30)).unwrap();
        assert_eq!(read(&mut stream, 9, |_| ()).await, Ok(30));
        assert_eq!(peer.has(&format!("gone-{pid}")), round > 0);
        // Gone without a word; this process removes its socket in the background.
        drop((lost, stream, client));
        until("the socket is gone", || !peer.socket().exists()).await;
    }
    peer.signal("kill");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_of_64_mib_go_both_ways() {
    let mut peer = PythonPeer::new();
    peer.start();
    let client = client(&peer, |config| config.window = SMALL_WINDOW).await;
    for round in 0..2 {
        let prompt: Vec<i32> = (0..16 << 20)
            .map(|n: i32| n.wrapping_mul(-1_640_531_527) ^ round)
            .collect();
        let mut stream = client
            .submit(submission("echo", prompt.clone(), 1))
            .unwrap();
        let step = tokio::time::timeout(Duration::from_secs(60), stream.next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(step.tokens.len(), prompt.len());
        assert!(step.tokens == prompt && step.finish.is_some());
        let mut after = client.submit(submission("gen", vec![7], 5)).unwrap();
        assert_eq!(read(&mut after, 7, |_| ()).await, Ok(5));
    }
    client.shutdown(Duration::ZERO).await;
    peer.signal("kill");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_core_that_reads_nothing_costs_no_memory() {
    let mut peer = PythonPeer::new();
    let pid = peer.start();
    let client = client(&peer, |_| {}).await;
    let prompts: Vec<Vec<i32>> = (0..600).map(|n| (n..n + (64 << 10)).collect()).collect();
    peer.signal("stop");
    let before = resident(std::process::id());
    // 150 MiB, of which the core's window of 32 MiB may be under way.
    let streams: Vec<_> = prompts
        .into_iter()
        .map(|prompt| client.submit(submission("gen", prompt, 3)).unwrap())
        .collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let grown = resident(std::process::id()).saturating_sub(before);
    println!("{grown} MiB more in the frontend");
    assert!(grown < 80, "{grown} MiB more");
    peer.signal("cont");
    for (first, mut stream) in (0..).zip(streams) {
        assert_eq!(read(&mut stream, first, |_| ()).await, Ok(3));
    }
    println!("{} MiB in the core", resident(pid));
    client.shutdown(Duration::ZERO).await;
    peer.signal("kill");
}

/// A frontend without a client, which reads when it wants to.
struct Reader {
    router: ZmqRouter,
    session: Session,
    origin: Instant,
}

impl Reader {
    /// Takes in the next message; returns it if it is numbered and new.
    async fn next(&mut self) -> Option<CoreMessage> {
        let Incoming::Message { peer, frames } = self.router.receive().await.unwrap() else {
            panic!("the core has left")
        };
        let header = Header::decode(&frames[0]).unwrap();
        let message = CoreMessage::decode(&frames[1]).unwrap();
        let kind = match &message {
            CoreMessage::Hello(_) => Kind::Hello,
            CoreMessage::Ack(ack) => Kind::Ack { sent: ack.sent },
            _ => Kind::Numbered,
        };
        let (bytes, now) = (frames[1].len() as u64, self.origin.elapsed());
        let mut delivered = None;
        match self.session.receive(&header, kind, bytes, now) {
            Verdict::Asked => {
                let header = self.session.open(&header, now);
                let version = octavo_wire::VERSION.to_owned();
                self.send(
                    &peer,
                    &header,
                    &Welcome {
                        protocol: octavo_wire::PROTOCOL,
                        version,
                    },
                )
                .await;
                let request = AddRequest {
                    id: 1,
                    attempt: 1,
                    name: "fast".to_owned(),
                    prompt: Tokens(vec![11]),
                    emitted: Tokens::default(),
                    sampling: SamplingParams::new(1, 200_000),
                    arrival_us: 0,
                    priority: 0,
                    grammar: None,
                    domain: None,
                    pooling: None,
                    embeds: None,
                };
                let header = self.session.number(100, now);
                self.send(&peer, &header, &request).await;
            }
            Verdict::Deliver => {
                self.session.consumed(self.session.openings(), bytes);
                delivered = Some(message);
            }
            Verdict::Lost => panic!("messages are missing"),
            _ => {}
        }
        if self.session.ack_due(now) {
            let (header, ack) = self.session.ack(now);
            self.send(&peer, &header, &ack).await;
        }
        delivered
    }

    async fn send(&mut self, peer: &Bytes, header: &Header, message: &impl Record) {
        let (mut head, mut body) = (Vec::new(), Vec::new());
        header.encode(&mut head);
        message.encode(&mut body);
        self.router
            .send(peer, vec![head.into(), body.into()])
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frontend_that_reads_nothing_costs_a_core_no_memory() {
    let mut peer = PythonPeer::new();
    let pid = peer.start();
    let router = ZmqRouter::bind(&peer.config().endpoint).await.unwrap();
    let mut reader = Reader {
        router,
        session: Session::new(Role::Frontend, 77, SMALL_WINDOW),
        origin: Instant::now(),
    };
    while !matches!(reader.next().await, Some(CoreMessage::EngineReady(_))) {}
    let before = resident(pid);
    until("all is generated", || peer.has("generated")).await;
    let grown = resident(pid).saturating_sub(before);
    println!("{grown} MiB more in the core");
    assert!(grown < 20, "200,000 steps: {grown} MiB more");
    let (mut count, mut messages) = (0, 0);
    while count < 200_000 {
        let Some(CoreMessage::Deltas(deltas)) = reader.next().await else {
            continue;
        };
        messages += 1;
        for delta in deltas.items {
            assert_eq!(delta.start, count as u64, "tokens lost or repeated");
            for id in delta.tokens.iter() {
                assert_eq!(*id, token(11, count));
                count += 1;
            }
        }
    }
    println!("200,000 tokens in {messages} messages");
    assert!(messages < 20_000, "merged, not queued");
    peer.signal("kill");
}
