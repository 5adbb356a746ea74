//! Tokens of one output to text.

use octavo_api::{FinishReason, StopReason};
use octavo_wire::frontend::Finish;

/// What an output gained.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Update {
    /// Text that is certain now; may be empty.
    pub text: String,
    /// Set once, when the output has ended. Nothing may be pushed afterwards.
    pub end: Option<Ended>,
}

/// How an output ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// For the client.
    pub reason: FinishReason,
    /// The stop string or stop id of the request that ended it.
    pub stop_reason: Option<StopReason>,
    /// Tokens that count: up to and including the one in which a stop string ended.
    pub completion_tokens: usize,
}

/// Text of one output, as its tokens come. The joined text and the end do not depend on how tokens were cut into steps.
#[derive(Debug)]
pub struct OutputText {}

impl OutputText {
    /// Takes the tokens of one step, and the engine's finish where the step is the last.
    ///
    /// Returns the text that is certain now. When `end` is set and `finish` was `None`, a stop string has matched: the
    /// caller drops its stream, which aborts the request in the engine.
    pub fn advance(&mut self, _ids: &[i32], _finish: Option<&Finish>) -> Update {
        Update::default()
    }

    /// Tokens taken so far.
    pub fn completion_tokens(&self) -> usize {
        0
    }
}
