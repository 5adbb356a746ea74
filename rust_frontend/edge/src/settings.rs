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
    /// Connections that are open at a time; further clients wait to be accepted.
    pub max_connections: usize,
    /// TLS handshakes that run at a time.
    pub max_handshakes: usize,
    /// A request's head must be complete so long after its first byte, the first of a connection after its beginning.
    pub head_timeout: Duration,
    /// A connection without a request is closed after this time. Longer than proxies keep theirs (60 to 90 s), so that
    /// none sends a request into a connection that is being closed.
    pub idle_timeout: Duration,
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
    /// Tokens, prompt and possible output, of all open requests; more get 429. `None`: any number.
    pub max_open_tokens: Option<u64>,
    /// Requests that one key or certificate may have open; more get 429. `None`: any number.
    pub max_requests_per_key: Option<usize>,
    /// A request that is not answered within this time ends with an error. `None`: it may take for ever.
    pub request_timeout: Option<Duration>,
    /// Whether each request gets a line in the log.
    pub access_log: bool,
    /// Whether the log shows what clients send.
    pub log_prompts: bool,
    /// Threads that parse, render and tokenize large bodies.
    pub compute_threads: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_body_bytes: 32 << 20,
            max_pending_bytes: 512 << 20,
            max_head_bytes: 64 << 10,
            max_connections: 16384,
            max_handshakes: 256,
            head_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(120),
            handshake_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(60),
            keep_alive: Duration::from_secs(15),
            linger: Duration::from_secs(1),
            max_open_tokens: None,
            max_requests_per_key: None,
            request_timeout: None,
            access_log: false,
            log_prompts: false,
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
