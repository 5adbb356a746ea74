//! The task that plays an engine core: one link, one engine, one clock.

use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use octavo_wire::frontend::{ControlDone, Deltas, EngineFault, EngineReady, FrontendMessage};
use tokio::time::{Instant, MissedTickBehavior};

use crate::engine::Added;
use crate::link::{Event, Link};
use crate::{Engine, Mishap, Script};

/// Of timers: Hello, acknowledgement, statistics.
const TICK: Duration = Duration::from_millis(100);
/// Statistics go out no more often.
const STATS_INTERVAL: Duration = Duration::from_millis(500);
/// How long the last acknowledgement may take.
const DRAIN: Duration = Duration::from_secs(2);

/// Why a mock has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It was told to stop, and has said goodbye.
    Stopped,
    /// The frontend told it to stop.
    Shutdown,
    /// The script let it die at this step: nothing was said.
    Died {
        /// Of the script.
        step: u64,
    },
    /// The script let its workers die for good.
    Failed,
}

/// Why a mock cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MockError {
    /// The frontend will not have it.
    #[error("the frontend refuses this engine: {0}")]
    Refused(String),
}

/// An engine core by its looks. Each one is a process of its own to the frontend, also within one process.
pub struct Mock {
    script: Arc<Script>,
    link: Link,
    engine: Engine,
    status: Status,
    step: Option<Step>,
    stats_at: Instant,
    was_idle: bool,
    on_ready: Option<Box<dyn FnOnce() + Send>>,
}

/// Whether requests run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    /// There was no session yet.
    New,
    /// Until then.
    Starting(Instant),
    Ready,
    /// The workers are gone until then.
    Down(Instant),
}

/// The step that runs.
#[derive(Debug, Clone, Copy)]
struct Step {
    number: u64,
    end: Instant,
    lose: bool,
}

#[allow(
    clippy::large_enum_variant,
    reason = "passed on at once, never kept in numbers"
)]
enum Wake {
    Event(Option<Event>),
    Tick,
    Due,
}

impl Mock {
    /// Sets up an engine for the frontend that listens, or will listen, at `endpoint` (`ipc:///path`).
    #[must_use]
    pub fn new(script: Script, endpoint: &str) -> Self {
        let script = Arc::new(script);
        Self {
            link: Link::new(endpoint, draw_incarnation()),
            engine: Engine::new(Arc::clone(&script)),
            script,
            status: Status::New,
            step: None,
            stats_at: Instant::now(),
            was_idle: true,
            on_ready: None,
        }
    }

    /// Calls `hook` once, when the frontend has been told that requests may come.
    #[must_use]
    pub fn on_ready(mut self, hook: impl FnOnce() + Send + 'static) -> Self {
        self.on_ready = Some(Box::new(hook));
        self
    }

    /// Plays until `stop` is there or the script ends it. Connections that break are made anew.
    ///
    /// # Errors
    /// The frontend refuses.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<Ending, MockError> {
        let mut stop = pin!(stop);
        let mut ticker = tokio::time::interval(TICK);
        ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = &mut stop => return self.leave(Ending::Stopped, "the mock was stopped").await,
                () = self.link.connect() => {}
            }
            let due = self.due();
            let wake = tokio::select! {
                biased;
                () = &mut stop => return self.leave(Ending::Stopped, "the mock was stopped").await,
                event = self.link.receive() => Wake::Event(event),
                _ = ticker.tick() => Wake::Tick,
                () = until(due) => Wake::Due,
            };
            if let Some(ending) = self.turn(wake).await? {
                return Ok(ending);
            }
        }
    }

    /// When something is to be done that nobody asks for.
    fn due(&self) -> Option<Instant> {
        match (self.status, self.step) {
            (Status::New, _) => None,
            (Status::Starting(at) | Status::Down(at), _) => Some(at),
            (Status::Ready, step) => step.map(|step| step.end),
        }
    }

    async fn turn(&mut self, wake: Wake) -> Result<Option<Ending>, MockError> {
        match wake {
            Wake::Event(Some(Event::Refused(reason))) => return Err(MockError::Refused(reason)),
            Wake::Event(Some(event)) => {
                if let Some(ending) = self.event(event).await {
                    return Ok(Some(ending));
                }
            }
            Wake::Tick => self.report().await,
            Wake::Event(None) | Wake::Due => {}
        }
        self.link.keep().await;
        self.rise().await;
        let ended = self.end_step().await;
        self.begin_step(ended).await
    }

    async fn event(&mut self, event: Event) -> Option<Ending> {
        match event {
            Event::Opened { new_peer } => self.opened(new_peer).await,
            Event::Message(FrontendMessage::AddRequest(request)) => {
                match self.engine.add(request) {
                    Added::Queued | Added::Old => {}
                    Added::Done(delta) => self.deliver(0, vec![delta], false).await,
                    Added::Rejected(rejected) => self.link.send(&rejected).await,
                }
            }
            Event::Message(FrontendMessage::AbortRequests(abort)) => {
                self.engine.abort(&abort.ids);
            }
            Event::Message(FrontendMessage::Control(control)) => {
                let shutdown = control.op == "shutdown";
                let error = (!shutdown)
                    .then(|| format!("unknown operation {:?}; known is shutdown", control.op));
                let done = ControlDone {
                    id: control.id,
                    error,
                    result: [].into(),
                    code: "unsupported".to_owned(),
                    param: None,
                };
                self.link.send(&done).await;
                if shutdown {
                    return Some(self.farewell(Ending::Shutdown, "shutdown").await);
                }
            }
            Event::Message(_) | Event::Refused(_) => {}
            Event::Left => tracing::info!("the connection to the frontend has ended"),
        }
        None
    }

    async fn opened(&mut self, new_peer: bool) {
        tracing::info!("a session with the frontend is open");
        if new_peer {
            self.engine.clear();
        }
        match self.status {
            Status::New => self.status = Status::Starting(Instant::now() + self.script.startup),
            Status::Starting(_) => {}
            Status::Ready => self.say_ready().await,
            Status::Down(_) => self.say_fault(true).await,
        }
    }

    /// Becomes ready when it is time.
    async fn rise(&mut self) {
        if let Status::Starting(at) | Status::Down(at) = self.status
            && at <= Instant::now()
        {
            self.status = Status::Ready;
            self.say_ready().await;
            if let Some(hook) = self.on_ready.take() {
                hook();
            }
        }
    }

    async fn say_ready(&mut self) {
        let info = self.script.info.clone();
        self.link.send(&EngineReady { info }).await;
    }

    async fn say_fault(&mut self, restarting: bool) {
        let fault = EngineFault {
            kind: "worker_died".to_owned(),
            message: "the workers died, as the script says".to_owned(),
            restarting,
        };
        self.link.send(&fault).await;
    }

    /// Ends the step if it is time. Returns when it ended by the script's clock.
    async fn end_step(&mut self) -> Option<Instant> {
        let step = self
            .step
            .take_if(|step| step.end <= Instant::now() && self.status == Status::Ready)?;
        let deltas = self.engine.finish();
        self.deliver(step.number, deltas, step.lose).await;
        if self.script.step_time.is_zero() {
            // The socket's tasks run on this thread too.
            tokio::task::yield_now().await;
        }
        Some(step.end)
    }

    async fn deliver(&mut self, step: u64, items: Vec<octavo_wire::frontend::Delta>, lose: bool) {
        if !items.is_empty() {
            self.link.deliver(&Deltas { step, items }, lose).await;
        }
    }

    /// Begins a step if none runs and there is work and room on the link. One that follows another begins where that ended,
    /// so that late timers do not add up.
    async fn begin_step(&mut self, ended: Option<Instant>) -> Result<Option<Ending>, MockError> {
        if self.step.is_some() || self.status != Status::Ready || !self.link.is_clear() {
            return Ok(None);
        }
        let Some(number) = self.engine.begin() else {
            return Ok(None);
        };
        let (now, time) = (Instant::now(), self.script.step_time);
        let begin = ended.filter(|ended| now - *ended < time).unwrap_or(now);
        let mut step = Step {
            number,
            end: begin + time,
            lose: false,
        };
        let script = Arc::clone(&self.script);
        for fault in script.faults.iter().filter(|fault| fault.hits(number)) {
            tracing::info!("step {number}: {:?}", fault.mishap);
            match fault.mishap {
                Mishap::Die => return Ok(Some(Ending::Died { step: number })),
                Mishap::Lose => step.lose = true,
                Mishap::Stall(time) => step.end += time,
                Mishap::Freeze(time) => tokio::time::sleep(time).await,
                Mishap::Fault(time) => {
                    self.status = Status::Down(Instant::now() + time);
                    self.say_fault(true).await;
                    return Ok(None);
                }
                Mishap::Fail => {
                    self.say_fault(false).await;
                    return Ok(Some(
                        self.farewell(Ending::Failed, "the workers died").await,
                    ));
                }
            }
        }
        self.step = Some(step);
        Ok(None)
    }

    async fn report(&mut self) {
        let idle = self.engine.is_idle();
        let due = self.stats_at.elapsed() >= STATS_INTERVAL || (idle && !self.was_idle);
        self.was_idle = idle;
        if due && self.link.is_clear() {
            self.stats_at = Instant::now();
            self.link.send(&self.engine.stats()).await;
        }
    }

    async fn leave(mut self, ending: Ending, reason: &str) -> Result<Ending, MockError> {
        Ok(self.farewell(ending, reason).await)
    }

    /// Says goodbye and waits, not for long, until everything has arrived.
    async fn farewell(&mut self, ending: Ending, reason: &str) -> Ending {
        self.link.goodbye(reason).await;
        let drained = async {
            while !self.link.drained() {
                self.link.receive().await;
            }
        };
        if tokio::time::timeout(DRAIN, drained).await.is_err() {
            tracing::warn!("the frontend does not acknowledge the end");
        }
        ending
    }
}

/// Waits until a moment; for ever if there is none.
async fn until(due: Option<Instant>) {
    match due {
        Some(at) if at <= Instant::now() => {}
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Draws what tells this engine from all others; never 0.
fn draw_incarnation() -> u64 {
    RandomState::new().hash_one(std::process::id()).max(1)
}
