//! What is known of the engine, for whoever asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use octavo_wire::frontend::{EngineInfo, Stats};
use parking_lot::Mutex;
use tokio::sync::watch;

/// Written by the client's task, read by routes.
#[derive(Debug)]
pub(crate) struct Status {
    info: Mutex<Option<Arc<EngineInfo>>>,
    stats: Mutex<Option<Stats>>,
    ready: AtomicBool,
    alive: AtomicBool,
    closing: AtomicBool,
    open: AtomicUsize,
    restarts: AtomicU64,
    trial: watch::Sender<bool>,
}

impl Status {
    pub(crate) fn new() -> Self {
        Self {
            info: Mutex::new(None),
            stats: Mutex::new(None),
            ready: AtomicBool::new(false),
            alive: AtomicBool::new(true),
            closing: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            restarts: AtomicU64::new(0),
            trial: watch::Sender::new(false),
        }
    }

    pub(crate) fn info(&self) -> Option<Arc<EngineInfo>> {
        self.info.lock().clone()
    }

    pub(crate) fn set_info(&self, info: EngineInfo) {
        *self.info.lock() = Some(Arc::new(info));
    }

    pub(crate) fn stats(&self) -> Option<Stats> {
        self.stats.lock().clone()
    }

    pub(crate) fn set_stats(&self, stats: Stats) {
        *self.stats.lock() = Some(stats);
    }

    pub(crate) fn ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    pub(crate) fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Release);
    }

    pub(crate) fn alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    pub(crate) fn set_alive(&self, alive: bool) {
        self.alive.store(alive, Ordering::Release);
    }

    pub(crate) fn closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// Takes one of `limit` places. Returns whether there was one.
    pub(crate) fn enter(&self, limit: usize) -> bool {
        let enter = |open: usize| (open < limit).then_some(open + 1);
        self.open
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, enter)
            .is_ok()
    }

    /// Gives a place back.
    pub(crate) fn leave(&self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    pub(crate) fn trial(&self) -> watch::Receiver<bool> {
        self.trial.subscribe()
    }

    pub(crate) fn set_trial(&self, active: bool) {
        self.trial
            .send_if_modified(|now| std::mem::replace(now, active) != active);
    }

    pub(crate) fn restarted(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }
}
