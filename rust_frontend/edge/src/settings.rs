//! Limits and time-outs of the HTTP side, and its clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Limits and time-outs; the defaults suit a server that strangers can reach.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Largest request body, in bytes; larger ones get 413.
    pub max_body_bytes: usize,
    /// Bytes of bodies that may be in memory at a time, before they are rendered; more get 503.
    pub max_pending_bytes: usize,
    /// Largest request head, in bytes.
    pub max_head_bytes: usize,
    /// A request's head must be complete so long after the connection fell idle.
    pub head_timeout: Duration,
    /// A TLS handshake must be done within this time.
    pub handshake_timeout: Duration,
    /// The next part of a body must come within this time.
    pub body_timeout: Duration,
    /// A client that takes nothing for so long while there is something to send is disconnected.
    pub write_timeout: Duration,
    /// Silence on a stream after which a comment line says that the server is alive.
    pub keep_alive: Duration,
    /// After running requests were told to end, connections get so long to send it.
    pub linger: Duration,
    /// Threads that parse, render and tokenize large bodies.
    pub compute_threads: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_body_bytes: 32 << 20,
            max_pending_bytes: 512 << 20,
            max_head_bytes: 64 << 10,
            head_timeout: Duration::from_secs(30),
            handshake_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(60),
            keep_alive: Duration::from_secs(15),
            linger: Duration::from_secs(1),
            compute_threads: 1,
        }
    }
}

/// The time of day as Unix seconds; 0 if the clock stands before 1970.
#[must_use]
pub fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
