//! What the engine client is told.

use std::time::Duration;

/// Settings of an [`crate::EngineClient`].
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Where engine cores connect: `ipc:///path` in a folder of mode 700.
    pub endpoint: String,
    /// What an engine core must show in its `Hello`; empty: whoever connects is one.
    pub key: Vec<u8>,
    /// The data-parallel rank of the core that connects there.
    pub rank: u32,
    /// Requests that are open at once at most; more are `Overloaded`.
    pub max_open_requests: usize,
    /// How long a request waits for an engine that is away before it fails.
    pub replay_timeout: Duration,
    /// An engine that says nothing for so long is taken for away until it speaks again.
    pub peer_timeout: Duration,
    /// Bytes of an engine's messages that are under way at most.
    pub window: u64,
}

impl EngineConfig {
    /// Settings with the usual limits.
    #[must_use]
    pub fn new(endpoint: &str) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            key: Vec::new(),
            rank: 0,
            max_open_requests: 1024,
            replay_timeout: Duration::from_secs(300),
            peer_timeout: Duration::from_secs(10),
            window: 32 << 20,
        }
    }
}
