//! Operations that the core was asked for and has not answered.

use std::collections::{BTreeMap, VecDeque};

use octavo_wire::frontend::{Control, ControlDone};
use tokio::sync::oneshot;

use crate::GenerateError;

/// What an operation gave, or why it did not happen.
pub(crate) type Answer = Result<BTreeMap<String, String>, GenerateError>;

/// Those to be sent, in order, and those that were sent.
#[derive(Debug, Default)]
pub(crate) struct Controls {
    last_id: u64,
    queued: VecDeque<Control>,
    open: BTreeMap<u64, oneshot::Sender<Answer>>,
}

impl Controls {
    pub(crate) fn add(
        &mut self,
        op: String,
        args: BTreeMap<String, String>,
        reply: oneshot::Sender<Answer>,
    ) {
        self.last_id += 1;
        let id = self.last_id;
        self.queued.push_back(Control { id, op, args });
        self.open.insert(id, reply);
    }

    /// The one to send next.
    pub(crate) fn next(&self) -> Option<&Control> {
        self.queued.front()
    }

    /// Notes that it was sent.
    pub(crate) fn sent(&mut self) {
        self.queued.pop_front();
    }

    /// Takes in an answer; one that nobody waits for is ignored.
    pub(crate) fn done(&mut self, done: ControlDone) {
        if let Some(reply) = self.open.remove(&done.id) {
            let answer = match done.error {
                None => Ok(done.result),
                Some(message) => Err(refused(&done.code, message, done.param)),
            };
            // Whoever asked may have left.
            let _ = reply.send(answer);
        }
    }

    /// Ends those that were sent: the session in which they were is over, and nobody knows what became of them.
    pub(crate) fn reopened(&mut self) {
        let queued: Vec<u64> = self.queued.iter().map(|control| control.id).collect();
        let lost: Vec<u64> = self
            .open
            .keys()
            .copied()
            .filter(|id| !queued.contains(id))
            .collect();
        for id in lost {
            if let Some(reply) = self.open.remove(&id) {
                let message = "the engine was restarted before it answered; ask again".to_owned();
                let _ = reply.send(Err(GenerateError::Unavailable {
                    message,
                    retry_after_s: 2,
                }));
            }
        }
    }
}

/// Why an operation did not happen, by the code of `ControlDone`.
fn refused(code: &str, message: String, param: Option<String>) -> GenerateError {
    match code {
        "invalid" => GenerateError::Rejected {
            code: code.to_owned(),
            message,
            param,
        },
        "conflict" => GenerateError::Conflict { message },
        "unsupported" => GenerateError::Unsupported { message },
        "unavailable" => GenerateError::Unavailable {
            message,
            retry_after_s: 2,
        },
        _ => GenerateError::Failed { message },
    }
}
