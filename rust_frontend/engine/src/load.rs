//! How much a member of a fleet has before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Prompt tokens that an engine core has been given and has not begun to answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Backlog(Arc<AtomicU64>);

/// The share of one request; it is taken away when this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    backlog: Backlog,
    tokens: u64,
}

impl Backlog {
    pub(crate) fn tokens(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, tokens: u64) -> Share {
        self.0.fetch_add(tokens, Ordering::Relaxed);
        Share {
            backlog: self.clone(),
            tokens,
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.backlog.0.fetch_sub(self.tokens, Ordering::Relaxed);
    }
}
