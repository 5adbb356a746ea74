//! The engine client: [`Generate`] over a link to an engine core.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use octavo_transport::{Transport, TransportError, ZmqRouter};
use octavo_wire::Tokens;
use octavo_wire::frontend::{AddRequest, EngineInfo, Stats};
use tokio::sync::{mpsc, oneshot, watch};

use crate::driver::{Command, Driver};
use crate::link::Link;
use crate::load::Backlog;
use crate::status::Status;
use crate::{
    ControlFuture, EngineConfig, Generate, GenerateError, StepStream, Submission, channel,
};

/// Submits requests to an engine core, and again to the next one when it dies.
#[derive(Debug)]
pub struct EngineClient {
    commands: mpsc::Sender<Command>,
    status: Arc<Status>,
    next_id: AtomicU64,
    max_open_requests: usize,
    backlog: Backlog,
}

impl EngineClient {
    /// Listens for an engine core. Must be called on a tokio runtime, which runs the client's task.
    ///
    /// # Errors
    /// If the endpoint is not `ipc:///path`, or cannot be bound.
    pub async fn start(config: EngineConfig) -> Result<Arc<Self>, TransportError> {
        let transport = ZmqRouter::bind(&config.endpoint).await?;
        Ok(Self::start_over(transport, config))
    }

    /// As [`EngineClient::start`], over a transport that stands already; `endpoint` is not looked at.
    pub fn start_over<T: Transport>(transport: T, config: EngineConfig) -> Arc<Self> {
        // An open request puts at most a submission and an abort here, and so do those that end while the task is busy.
        let (commands, receiver) = mpsc::channel(4 * config.max_open_requests + 16);
        let status = Arc::new(Status::new());
        let incarnation = draw_incarnation();
        let max_open_requests = config.max_open_requests;
        let link = Link::new(transport, incarnation, &config);
        tokio::spawn(Driver::new(link, Arc::clone(&status), receiver, config).run());
        // A core may still speak of the requests of the frontend before this one: ids start anywhere.
        let next_id = AtomicU64::new(incarnation >> 1);
        Arc::new(Self {
            commands,
            status,
            next_id,
            max_open_requests,
            backlog: Backlog::default(),
        })
    }

    /// Prompt tokens, as far as they must be computed, of requests that have not begun to answer.
    pub(crate) fn backlog(&self) -> u64 {
        self.backlog.tokens()
    }

    /// Whether an engine was there and may come back.
    pub(crate) fn may_return(&self) -> bool {
        self.status.alive() && self.status.info().is_some()
    }

    /// Number of open requests.
    #[must_use]
    pub fn open_requests(&self) -> usize {
        self.status.open()
    }

    /// How often an engine core has come back as a new process without a goodbye.
    #[must_use]
    pub fn engine_restarts(&self) -> u64 {
        self.status.restarts()
    }

    /// Whether requests that may have killed engine cores are being tried now, group by group: a core that dies then tells
    /// of the requests, not of itself.
    #[must_use]
    pub fn trial(&self) -> watch::Receiver<bool> {
        self.status.trial()
    }

    /// Takes no more requests, waits at most `grace` for the open ones, ends the rest, and waits (at most a second more)
    /// until the engine has acknowledged.
    pub async fn shutdown(&self, grace: Duration) {
        self.status.close();
        let (done, finished) = oneshot::channel();
        if self
            .commands
            .send(Command::Shutdown { grace, done })
            .await
            .is_ok()
        {
            // An error means that the task has ended by itself.
            let _ = finished.await;
        }
    }
}

impl Generate for EngineClient {
    fn submit(&self, request: Submission) -> Result<StepStream, GenerateError> {
        let tokens = request.prompt.len() as u64;
        self.send(request, tokens)
    }

    fn info(&self) -> Option<Arc<EngineInfo>> {
        self.status.info()
    }

    fn ready(&self) -> bool {
        self.status.ready()
    }

    fn alive(&self) -> bool {
        self.status.alive()
    }

    fn stats(&self) -> Option<Stats> {
        self.status.stats()
    }

    fn restarts(&self) -> u64 {
        self.status.restarts()
    }

    fn control(&self, op: &str, args: BTreeMap<String, String>) -> ControlFuture {
        let admitted = self.admit();
        let (reply, answer) = oneshot::channel();
        let op = op.to_owned();
        let asked = admitted.and_then(|()| {
            self.commands
                .try_send(Command::Control { op, args, reply })
                .map_err(|_| overloaded(self.max_open_requests))
        });
        Box::pin(async move {
            asked?;
            answer.await.unwrap_or_else(|_| {
                Err(GenerateError::Unavailable {
                    message: "the engine client stopped".to_owned(),
                    retry_after_s: 5,
                })
            })
        })
    }
}

impl EngineClient {
    /// Submits a request of whose prompt so many tokens must be computed.
    pub(crate) fn send(
        &self,
        request: Submission,
        uncached: u64,
    ) -> Result<StepStream, GenerateError> {
        self.admit()?;
        if !self.status.enter(self.max_open_requests) {
            return Err(overloaded(self.max_open_requests));
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, stream) = channel();
        let request = AddRequest {
            id,
            attempt: 1,
            name: request.name,
            prompt: Tokens(request.prompt),
            emitted: Tokens::default(),
            sampling: request.sampling,
            arrival_us: unix_micros(),
            priority: request.priority,
            grammar: request.grammar,
            domain: request.domain,
            pooling: request.pooling,
            embeds: request.embeds,
        };
        if self
            .commands
            .try_send(Command::Submit(Box::new((
                request,
                sender,
                self.backlog.add(uncached),
            ))))
            .is_err()
        {
            self.status.leave();
            return Err(overloaded(self.max_open_requests));
        }
        let commands = self.commands.clone();
        // If the queue is full, the task finds out with the next token.
        Ok(stream.on_abort(move || drop(commands.try_send(Command::Abort(id)))))
    }

    fn admit(&self) -> Result<(), GenerateError> {
        let unavailable = |message: &str, retry_after_s| {
            Err(GenerateError::Unavailable {
                message: message.to_owned(),
                retry_after_s,
            })
        };
        if self.status.closing() {
            return unavailable("the server is shutting down", 5);
        }
        if !self.status.alive() {
            return unavailable(
                "the engine has failed and does not come back; the server's log says why",
                30,
            );
        }
        if self.status.info().is_none() {
            return unavailable("the engine is not ready yet", 2);
        }
        Ok(())
    }
}

/// Says that so many requests are open, which is the limit.
pub(crate) fn overloaded(limit: usize) -> GenerateError {
    GenerateError::Overloaded {
        message: format!("{limit} requests are open, which is the limit; try again later"),
        retry_after_s: 1,
    }
}

/// Draws what tells this process from all others; never 0. The standard library's hash keys come from the system's
/// random numbers.
fn draw_incarnation() -> u64 {
    RandomState::new()
        .hash_one((std::process::id(), unix_micros()))
        .max(1)
}

fn unix_micros() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
