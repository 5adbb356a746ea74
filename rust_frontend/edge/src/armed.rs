//! Remembers who is woken by what a stream or a connection waits for besides its tokens.
//!
//! A token would otherwise cost a look at every timer and every token of cancellation, each of which takes a lock. What
//! has been polled with a waker, and is still pending, wakes it without being polled again.

use std::task::{Context, Waker};

use tokio::task::coop;

/// The waker with which everything was polled last.
#[derive(Debug, Default)]
pub struct Armed(Option<Waker>);

impl Armed {
    /// Whether everything that is pending wakes this task.
    #[must_use]
    pub fn wakes(&self, cx: &Context<'_>) -> bool {
        self.0
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()))
    }

    /// Says that everything has just been polled, and is pending.
    pub fn arm(&mut self, cx: &Context<'_>) {
        // A future of tokio's that finds the task's budget used up is pending without having noted who waits.
        self.0 = coop::has_budget_remaining().then(|| cx.waker().clone());
    }

    /// Says that something has been changed since.
    pub fn disarm(&mut self) {
        self.0 = None;
    }
}
