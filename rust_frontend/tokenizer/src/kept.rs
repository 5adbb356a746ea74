//! Memory that one thread uses after the other.

use std::sync::{Mutex, PoisonError};

/// So many pieces of memory are kept for the next threads.
const KEPT: usize = 16;

/// Pieces of memory that nobody uses now.
#[derive(Debug)]
pub(crate) struct Kept<T>(Mutex<Vec<T>>);

impl<T> Kept<T> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Takes one, or makes one.
    pub(crate) fn take(&self, make: impl FnOnce() -> T) -> T {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_else(make)
    }

    /// Gives one back.
    pub(crate) fn put(&self, memory: T) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT {
            kept.push(memory);
        }
    }
}
