//! The open requests: what each was asked, what it has emitted, what must be sent.
//!
//! No I/O and no clock. A request is `Queued` until it is handed out and in flight from then on; a new session queues all
//! of them again, each with a higher attempt. The ids emitted so far live here and go out with every attempt.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use octavo_wire::frontend::{AbortRequests, AddRequest, Delta, RequestRejected};

use crate::load::Share;
use crate::suspects::Suspects;
use crate::{GenerateError, News, StepSender};

/// Ids in one abort at most.
const ABORTS_PER_MESSAGE: usize = 1024;

/// One open request.
#[derive(Debug)]
struct Open {
    /// As it goes out next, or went out last.
    request: AddRequest,
    sender: StepSender,
    in_flight: bool,
    since: Duration,
    /// Until the first token comes.
    share: Option<Share>,
}

/// All open requests, by id; ids grow in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    open: BTreeMap<u64, Open>,
    queued: BTreeSet<u64>,
    aborts: BTreeMap<u64, &'static str>,
    suspects: Suspects,
    /// Of the weights that make the tokens that come.
    weights: Option<Arc<str>>,
}

/// A delta that begins beyond what is known: tokens are missing although no message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hole {
    /// Of the request.
    pub(crate) id: u64,
    /// Tokens known.
    pub(crate) have: u64,
    /// Index of the delta's first token.
    pub(crate) start: u64,
}

impl Registry {
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Tokens that come from now on are made by weights of this version.
    pub(crate) fn set_weights(&mut self, version: &str) {
        if self.weights.as_deref() != Some(version) {
            self.weights = Some(version.into());
        }
    }

    /// Whether requests that may have killed cores are being tried, group by group.
    pub(crate) fn on_trial(&self) -> bool {
        self.suspects.active()
    }

    pub(crate) fn add(
        &mut self,
        request: AddRequest,
        sender: StepSender,
        share: Share,
        now: Duration,
    ) {
        let id = request.id;
        self.queued.insert(id);
        self.open.insert(
            id,
            Open {
                request,
                sender,
                in_flight: false,
                since: now,
                share: Some(share),
            },
        );
    }

    /// Forgets a request that nobody waits for, and notes that the core must be told. Returns whether it was open.
    pub(crate) fn abort(&mut self, id: u64, reason: &'static str) -> bool {
        let Some(open) = self.remove(id) else {
            return false;
        };
        if open.in_flight {
            self.aborts.insert(id, reason);
        }
        true
    }

    /// Ends all requests with an error. Returns their number.
    pub(crate) fn fail_all(&mut self, reason: &'static str, error: &GenerateError) -> usize {
        let ids: Vec<u64> = self.open.keys().copied().collect();
        self.fail(&ids, reason, error)
    }

    /// Ends requests that have waited since `deadline` or before. Returns their number.
    pub(crate) fn fail_older(&mut self, deadline: Duration, error: &GenerateError) -> usize {
        let late = self.open.iter().filter(|(_, open)| open.since <= deadline);
        let ids: Vec<u64> = late.map(|(id, _)| *id).collect();
        self.fail(&ids, "timeout", error)
    }

    /// Lets readers know whether the engine is away.
    pub(crate) fn set_paused(&self, paused: bool) {
        for open in self.open.values() {
            open.sender.set_paused(paused);
        }
    }

    /// Queues everything again, because a session opened. If the core is a new one after a crash, looks for the request
    /// that may have killed it. Returns how many were ended on that ground.
    pub(crate) fn reopened(&mut self, crashed: bool) -> usize {
        let in_flight: BTreeSet<u64> = self
            .open
            .iter()
            .filter(|(_, open)| open.in_flight)
            .map(|(id, _)| *id)
            .collect();
        for open in self.open.values_mut().filter(|open| open.in_flight) {
            open.in_flight = false;
            open.request.attempt += 1;
        }
        self.queued = self.open.keys().copied().collect();
        self.aborts.clear();
        let convicted = if crashed {
            self.suspects.crashed(&in_flight)
        } else {
            None
        };
        let message = "the engine died each time it worked on this request".to_owned();
        convicted.map_or(0, |id| {
            self.fail(&[id], "client", &GenerateError::Failed { message })
        })
    }

    /// The request to send next.
    pub(crate) fn next(&self) -> Option<&AddRequest> {
        let id = self.queued.iter().find(|id| self.suspects.admits(**id))?;
        self.open.get(id).map(|open| &open.request)
    }

    /// Notes that a request was sent.
    pub(crate) fn sent(&mut self, id: u64) {
        self.queued.remove(&id);
        if let Some(open) = self.open.get_mut(&id) {
            open.in_flight = true;
        }
    }

    /// The abort to send next.
    pub(crate) fn next_abort(&self) -> Option<AbortRequests> {
        let reason = *self.aborts.values().next()?;
        let same = self
            .aborts
            .iter()
            .filter(|(_, other)| **other == reason)
            .map(|(id, _)| *id);
        Some(AbortRequests {
            ids: same.take(ABORTS_PER_MESSAGE).collect(),
            reason: reason.to_owned(),
        })
    }

    /// Notes that an abort was sent.
    pub(crate) fn aborted(&mut self, abort: &AbortRequests) {
        for id in &abort.ids {
            self.aborts.remove(id);
        }
    }

    /// Takes in new tokens: those of other attempts are dropped, those known already are cut off. Returns whether the
    /// request is done.
    ///
    /// # Errors
    /// `Hole` if tokens are missing before these.
    pub(crate) fn apply(&mut self, delta: Delta) -> Result<bool, Hole> {
        let Some(open) = self.open.get_mut(&delta.id) else {
            // The core does not know that nobody waits for this one.
            self.aborts.entry(delta.id).or_insert("client");
            return Ok(false);
        };
        if delta.attempt != open.request.attempt || !open.in_flight {
            return Ok(false);
        }
        let have = open.request.emitted.len();
        let known = usize::try_from(delta.start)
            .ok()
            .and_then(|start| have.checked_sub(start))
            .ok_or(Hole {
                id: delta.id,
                have: have as u64,
                start: delta.start,
            })?;
        let logprobs = delta.logprobs.map(|mut logprobs| {
            logprobs.skip(known);
            logprobs
        });
        let fresh = delta.tokens.get(known..).unwrap_or_default();
        open.request.emitted.extend_from_slice(fresh);
        let progress = !fresh.is_empty() || delta.finish.is_some();
        let done = delta.finish.is_some();
        let read = open.sender.deliver(News {
            tokens: fresh,
            cached_tokens: delta.cached_tokens,
            queued_us: delta.queued_us,
            logprobs,
            prompt_logprobs: delta.prompt_logprobs,
            pooled: delta.pooled,
            finish: delta.finish,
            weights: self.weights.as_ref(),
        });
        if progress {
            open.share = None;
            self.suspects.progressed(delta.id);
        }
        if done {
            self.remove(delta.id);
            return Ok(true);
        }
        Ok(!read && self.abort(delta.id, "client"))
    }

    /// Takes in a refusal. Returns whether it ended a request.
    pub(crate) fn reject(&mut self, rejected: RequestRejected) -> bool {
        if self
            .open
            .get(&rejected.id)
            .is_none_or(|open| open.request.attempt != rejected.attempt)
        {
            return false;
        }
        let RequestRejected {
            id,
            code,
            message,
            param,
            ..
        } = rejected;
        if let Some(open) = self.remove(id) {
            open.sender.fail(match code.as_str() {
                "overloaded" => GenerateError::Overloaded {
                    message,
                    retry_after_s: 1,
                },
                _ => GenerateError::Rejected {
                    code,
                    message,
                    param,
                },
            });
        }
        true
    }

    fn fail(&mut self, ids: &[u64], reason: &'static str, error: &GenerateError) -> usize {
        let mut failed = 0;
        for id in ids {
            if let Some(open) = self.remove(*id) {
                if open.in_flight {
                    self.aborts.insert(*id, reason);
                }
                open.sender.fail(error.clone());
                failed += 1;
            }
        }
        failed
    }

    fn remove(&mut self, id: u64) -> Option<Open> {
        let open = self.open.remove(&id)?;
        self.queued.remove(&id);
        self.suspects.forget(id);
        Some(open)
    }
}
