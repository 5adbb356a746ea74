//! A response that runs in the background: nobody waits for it, and everybody who may can follow it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use octavo_api::ResponseObject;
use octavo_edge::{Caller, contain, defect};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::events::Run;
use crate::output::{Output, Piece};

/// What others see of it.
pub(super) struct Job {
    pub(super) owner: Caller,
    /// Ends it.
    pub(super) cancel: CancellationToken,
    /// Told when there is more, and at the end.
    pub(super) changed: Notify,
    /// Whether it is forgotten when it has ended.
    pub(super) deleted: AtomicBool,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    text: BytesMut,
    /// Where each event begins.
    starts: Vec<usize>,
    ended: bool,
}

impl Job {
    pub(super) fn new(owner: Caller) -> Self {
        Self {
            owner,
            cancel: CancellationToken::new(),
            changed: Notify::new(),
            deleted: AtomicBool::new(false),
            log: Mutex::default(),
        }
    }

    /// Where the event behind this one begins.
    pub(super) fn behind(&self, number: u64) -> usize {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let next = usize::try_from(number)
            .unwrap_or(usize::MAX)
            .saturating_add(1);
        log.starts.get(next).copied().unwrap_or(log.text.len())
    }

    /// What was written from this byte on; `None`: nothing.
    pub(super) fn from(&self, at: usize) -> Option<Bytes> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = log.text.get(at..).filter(|rest| !rest.is_empty())?;
        Some(Bytes::copy_from_slice(rest))
    }

    pub(super) fn ended(&self) -> bool {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .ended
    }

    /// Waits until it has ended.
    pub(super) async fn end(&self) {
        loop {
            let changed = self.changed.notified();
            if self.ended() {
                return;
            }
            changed.await;
        }
    }

    /// Takes over whole events.
    fn push(&self, events: &mut BytesMut) {
        if events.is_empty() {
            return;
        }
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = log.text.len();
        for length in lengths(events) {
            log.starts.push(at);
            at += length;
        }
        log.text.extend_from_slice(events);
        drop(log);
        events.clear();
        self.changed.notify_waiters();
    }

    fn text(&self) -> String {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&log.text).into_owned()
    }

    fn finish(&self) {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .ended = true;
        self.changed.notify_waiters();
    }
}

/// Lengths of the events in a run of bytes.
fn lengths(events: &[u8]) -> impl Iterator<Item = usize> {
    let text = std::str::from_utf8(events).unwrap_or_default();
    text.split_inclusive("\n\n").map(str::len)
}

/// Starts the run, and returns how it stands then. `streams`: its events are kept, too.
pub(super) fn start(mut run: Run, output: Output, job: Arc<Job>, streams: bool) -> ResponseObject {
    run.writer.queue();
    let queued = run.writer.object().clone();
    job.push(run.written());
    tokio::spawn(async move {
        let id = run.record.object.id.clone();
        if contain(&id, drive(&mut run, output, &job)).await.is_none() {
            run.writer.fail(&defect());
        }
        job.push(run.written());
        if !job.deleted.load(Ordering::SeqCst) {
            run.keep(streams.then(|| job.text())).await;
        }
        run.state.responses.done(&id);
        job.finish();
    });
    queued
}

async fn drive(run: &mut Run, mut output: Output, job: &Job) {
    let mut piece = Piece::default();
    loop {
        let next = tokio::select! {
            biased;
            () = job.cancel.cancelled() => {
                run.writer.cancel();
                return;
            }
            next = output.next(&mut piece) => next,
        };
        match next {
            Ok(()) => {
                if run.writer.begin() {
                    run.keep(None).await;
                }
                if run.writer.take(&mut piece) {
                    return;
                }
            }
            Err(error) => {
                run.writer.fail(&error);
                return;
            }
        }
        job.push(run.written());
    }
}
