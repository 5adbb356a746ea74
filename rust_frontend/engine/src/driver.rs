//! The task that owns the link to the engine and the registry of open requests.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use octavo_transport::{Incoming, Transport};
use octavo_wire::frontend::{AddRequest, CoreMessage, Delta, EngineFault, EngineInfo};
use tokio::sync::{mpsc, oneshot};

use crate::affinity::weight_version;
use crate::controls::{Answer, Controls};
use crate::link::{Core, Event, Link};
use crate::load::Share;
use crate::registry::Registry;
use crate::status::Status;
use crate::{EngineConfig, GenerateError, StepSender};

/// Of timers: acknowledgement, liveness, replay time-out.
const TICK: Duration = Duration::from_millis(100);
/// How long the last acknowledgement may take at shutdown.
const DRAIN: Duration = Duration::from_secs(1);

/// What the client's handle asks of the task.
#[derive(Debug)]
pub(crate) enum Command {
    Submit(Box<(AddRequest, StepSender, Share)>),
    Abort(u64),
    Control {
        op: String,
        args: BTreeMap<String, String>,
        reply: oneshot::Sender<Answer>,
    },
    Shutdown {
        grace: Duration,
        done: oneshot::Sender<()>,
    },
}

#[derive(Debug)]
struct Closing {
    /// Requests that are open then are aborted.
    deadline: Duration,
    done: oneshot::Sender<()>,
}

/// What the core says of its model.
#[derive(Debug, PartialEq, Eq)]
enum Model {
    Runs,
    /// Somebody has paused it, or put it to sleep.
    Waits,
    /// It runs nothing until somebody helps; this is why.
    Unusable(String),
}

enum Wake {
    Message(Incoming),
    Command(Option<Command>),
    Tick,
}

/// The task's state.
#[derive(Debug)]
pub(crate) struct Driver<T> {
    link: Link<T>,
    registry: Registry,
    controls: Controls,
    status: Arc<Status>,
    commands: mpsc::Receiver<Command>,
    config: EngineConfig,
    /// The core has said in this session that requests may come, and has not taken it back.
    accepting: bool,
    /// Whether requests run, as far as the core says.
    model: Model,
    /// Requests run: what routes and streams were told last.
    serves: bool,
    /// The core has said goodbye: that it is gone then is no crash.
    farewell: bool,
    away_since: Option<Duration>,
    closing: Option<Closing>,
}

impl<T: Transport> Driver<T> {
    pub(crate) fn new(
        link: Link<T>,
        status: Arc<Status>,
        commands: mpsc::Receiver<Command>,
        config: EngineConfig,
    ) -> Self {
        Self {
            link,
            registry: Registry::default(),
            controls: Controls::default(),
            status,
            commands,
            config,
            accepting: false,
            model: Model::Runs,
            serves: false,
            farewell: false,
            away_since: Some(Duration::ZERO),
            closing: None,
        }
    }

    /// Runs until shut down, or until nobody holds the client any more. Streams that are open then fail.
    pub(crate) async fn run(mut self) {
        let mut ticker = tokio::time::interval(TICK);
        ticker.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let wake = tokio::select! {
                incoming = self.link.receive() => match incoming {
                    Ok(incoming) => Wake::Message(incoming),
                    Err(error) => {
                        tracing::error!("the engine link is broken: {error}");
                        break;
                    }
                },
                command = self.commands.recv() => Wake::Command(command),
                _ = ticker.tick() => Wake::Tick,
            };
            if self.turn(wake).await.is_break() {
                break;
            }
        }
        self.status.set_ready(false);
        self.status.set_alive(false);
        if let Some(closing) = self.closing {
            // Whoever asked may have stopped waiting.
            let _ = closing.done.send(());
        }
    }

    async fn turn(&mut self, wake: Wake) -> ControlFlow<()> {
        match wake {
            Wake::Message(incoming) => match self.link.take(incoming).await {
                Some(Event::Opened { core }) => self.opened(core),
                Some(Event::Message(message)) => self.message(message).await,
                None => {}
            },
            Wake::Command(None) => return ControlFlow::Break(()),
            Wake::Command(Some(command)) => self.command(command),
            Wake::Tick => self.expire(),
        }
        while let Ok(command) = self.commands.try_recv() {
            self.command(command);
        }
        self.update_ready();
        self.status.set_trial(self.registry.on_trial());
        self.flush().await;
        self.close().await
    }

    fn command(&mut self, command: Command) {
        let now = self.link.now();
        match command {
            Command::Submit(submission) => {
                let (request, sender, share) = *submission;
                sender.set_paused(!self.serves);
                self.registry.add(request, sender, share, now);
            }
            Command::Abort(id) => {
                if self.registry.abort(id, "client") {
                    self.status.leave();
                }
            }
            Command::Control { op, args, reply } => self.controls.add(op, args, reply),
            Command::Shutdown { grace, done } => {
                self.closing = Some(Closing {
                    deadline: now + grace,
                    done,
                })
            }
        }
    }

    fn opened(&mut self, core: Core) {
        let crashed = core == Core::Another && !self.farewell;
        self.accepting = false;
        self.controls.reopened();
        self.status.set_alive(true);
        if core != Core::Same {
            self.farewell = false;
        }
        if crashed {
            self.status.restarted();
            tracing::warn!(
                "the engine is a new process; {} open requests go on",
                self.registry.len()
            );
        }
        let failed = self.registry.reopened(crashed);
        self.leave(failed);
    }

    async fn message(&mut self, message: CoreMessage) {
        match message {
            CoreMessage::Deltas(deltas) => self.deltas(deltas.items).await,
            CoreMessage::RequestRejected(rejected) => {
                let ended = self.registry.reject(rejected);
                self.leave(usize::from(ended));
            }
            CoreMessage::EngineReady(ready) => self.engine_ready(ready.info),
            CoreMessage::EngineFault(fault) => self.engine_fault(&fault),
            CoreMessage::Goodbye(goodbye) => {
                tracing::info!("the engine leaves: {}", goodbye.reason);
                self.accepting = false;
                self.farewell = true;
                self.link.acknowledge().await;
            }
            CoreMessage::Stats(stats) => self.status.set_stats(stats),
            CoreMessage::ControlDone(done) => self.controls.done(done),
            // The session's own.
            CoreMessage::Hello(_) | CoreMessage::Ack(_) => {}
        }
    }

    async fn deltas(&mut self, items: Vec<Delta>) {
        let mut done = 0;
        for delta in items {
            match self.registry.apply(delta) {
                Ok(ended) => done += usize::from(ended),
                Err(hole) => {
                    let (id, have, start) = (hole.id, hole.have, hole.start);
                    tracing::error!(
                        "request {id}: tokens {have} to {start} are missing; asking for all of it again"
                    );
                    self.link.reopen().await;
                    self.opened(Core::Same);
                    break;
                }
            }
        }
        self.leave(done);
    }

    fn engine_ready(&mut self, info: EngineInfo) {
        if !self.accepting {
            tracing::info!(
                "engine ready: {} in {}, {} KV blocks",
                info.model,
                info.dtype,
                info.num_blocks
            );
        }
        self.accepting = true;
        self.model = match &info.model_state {
            Some(state) if state.state == "unusable" => Model::Unusable(state.note.clone()),
            Some(state) if state.state != "running" => Model::Waits,
            _ => Model::Runs,
        };
        self.registry.set_weights(weight_version(&info));
        self.status.set_info(info);
    }

    fn engine_fault(&mut self, fault: &EngineFault) {
        self.accepting = false;
        if fault.restarting {
            tracing::warn!("engine fault ({}): {}", fault.kind, fault.message);
        } else {
            tracing::debug!("the engine gives up ({}): {}", fault.kind, fault.message);
            self.status.set_alive(false);
            let error = GenerateError::Failed {
                message: format!("the engine has failed: {}", fault.message),
            };
            let failed = self.registry.fail_all("shutdown", &error);
            self.leave(failed);
        }
    }

    /// Notices that the engine has gone away or come back, and whether its model runs.
    fn update_ready(&mut self) {
        let reachable = self.accepting && self.link.hears(self.config.peer_timeout);
        let serves = reachable && self.model == Model::Runs;
        if serves != self.serves {
            self.serves = serves;
            self.status.set_ready(serves);
            self.registry.set_paused(!serves);
        }
        // A pause may be as long as whoever made it wants.
        let away = !reachable || matches!(self.model, Model::Unusable(_));
        if away != self.away_since.is_some() {
            self.away_since = away.then(|| self.link.now());
        }
    }

    /// Fails requests that have waited too long for an engine that is away.
    fn expire(&mut self) {
        let deadline = self.link.now().checked_sub(self.config.replay_timeout);
        let (Some(deadline), Some(away_since)) = (deadline, self.away_since) else {
            return;
        };
        if away_since <= deadline {
            let seconds = self.config.replay_timeout.as_secs();
            let message = match &self.model {
                Model::Unusable(note) if self.accepting => {
                    format!("{note}; {seconds} seconds passed")
                }
                _ => format!("the engine has been away for more than {seconds} seconds"),
            };
            let error = GenerateError::Unavailable {
                message,
                retry_after_s: 30,
            };
            let failed = self.registry.fail_older(deadline, &error);
            self.leave(failed);
        }
    }

    /// Sends what waits, in order, as far as the credit goes.
    async fn flush(&mut self) {
        while let Some(abort) = self.registry.next_abort() {
            if !self.link.send(&abort).await {
                break;
            }
            self.registry.aborted(&abort);
        }
        while let Some(control) = self.controls.next().filter(|_| self.accepting) {
            if !self.link.send(control).await {
                break;
            }
            self.controls.sent();
        }
        while let Some(request) = self.registry.next().filter(|_| self.accepting) {
            let id = request.id;
            if !self.link.send(request).await {
                break;
            }
            self.registry.sent(id);
        }
        self.link.keep().await;
    }

    /// Breaks when a shutdown has come to its end.
    async fn close(&mut self) -> ControlFlow<()> {
        let Some(deadline) = self.closing.as_ref().map(|closing| closing.deadline) else {
            return ControlFlow::Continue(());
        };
        let now = self.link.now();
        if self.registry.len() > 0 && now >= deadline {
            let message = "the server is shutting down".to_owned();
            let error = GenerateError::Unavailable {
                message,
                retry_after_s: 5,
            };
            let failed = self.registry.fail_all("shutdown", &error);
            self.leave(failed);
            self.flush().await;
        }
        let deaf = !self.link.hears(self.config.peer_timeout) || now >= deadline + DRAIN;
        if self.registry.len() == 0 && (self.link.drained() || deaf) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn leave(&self, places: usize) {
        for _ in 0..places {
            self.status.leave();
        }
    }
}
