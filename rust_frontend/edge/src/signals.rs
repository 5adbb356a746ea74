//! SIGTERM and SIGINT: the first ends the server in order, the second at once.

use crate::shutdown::Shutdown;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both signals, from the moment this is made.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Watches from now on.
    ///
    /// # Errors
    /// The system refuses.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Drains the server at the first signal and leaves at the second.
    pub async fn obey(mut self, shutdown: Shutdown) {
        let name = self.next().await;
        tracing::info!("{name}: stopping (again: at once)");
        shutdown.drain();
        let name = self.next().await;
        tracing::warn!("{name} again: leaving at once");
        std::process::exit(1);
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
