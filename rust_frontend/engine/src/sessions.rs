//! Which engine core served a session last.
//!
//! What a session says next begins with all that was said before, answers included, which the core that wrote them has in
//! its cache and of which the router knows only the prompts.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

/// Sessions that are kept twice at most: beyond that the oldest are forgotten.
const CAPACITY: usize = 1 << 16;

/// Ranks by the names of sessions: two tables, of which the older one is dropped when the newer one is full.
#[derive(Debug)]
pub(crate) struct Sessions {
    newer: HashMap<u64, usize>,
    older: HashMap<u64, usize>,
    /// Names are clients' and of any length; where two give the same number, they share a core and nothing else.
    hasher: RandomState,
    /// Of each table.
    capacity: usize,
}

impl Default for Sessions {
    fn default() -> Self {
        Self::new(CAPACITY)
    }
}

impl Sessions {
    fn new(capacity: usize) -> Self {
        Self {
            newer: HashMap::new(),
            older: HashMap::new(),
            hasher: RandomState::new(),
            capacity,
        }
    }

    /// The rank that served the session last; `None`: it is new, or forgotten.
    pub(crate) fn home(&self, session: &str) -> Option<usize> {
        let key = self.hasher.hash_one(session);
        self.newer
            .get(&key)
            .or_else(|| self.older.get(&key))
            .copied()
    }

    /// Notes that a rank serves the session.
    pub(crate) fn settle(&mut self, session: &str, rank: usize) {
        let key = self.hasher.hash_one(session);
        if self.newer.len() >= self.capacity && !self.newer.contains_key(&key) {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(key, rank);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_sessions_are_known_and_no_more_than_two_tables() {
        let mut sessions = Sessions::new(8);
        for number in 0..100 {
            sessions.settle(&number.to_string(), number);
            sessions.settle("lively", number);
            assert!(sessions.newer.len() + sessions.older.len() <= 16);
        }
        assert_eq!(sessions.home("99"), Some(99));
        assert_eq!(sessions.home("lively"), Some(99));
        assert_eq!(sessions.home("0"), None);
    }
}
