//! The three stages of the end: drain, cut, abandon.

use tokio_util::sync::CancellationToken;

/// Tells all parts of the server to end. Clones share their state.
///
/// After `drain` no connection and no request is accepted; running ones go on. After `cut` running requests end with
/// an error that their clients can read. After `abandon` connections are dropped as they are.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    asked: CancellationToken,
    drain: CancellationToken,
    cut: CancellationToken,
    abandon: CancellationToken,
}

impl Shutdown {
    /// Asks whoever runs this server to end it: a client may, the server does not end by itself.
    pub fn ask(&self) {
        self.asked.cancel();
    }

    /// Waits until somebody asks for the end.
    pub async fn asked(&self) {
        self.asked.cancelled().await;
    }

    /// Begins the first stage.
    pub fn drain(&self) {
        self.drain.cancel();
    }

    /// Begins the second stage, and the first if it has not begun.
    pub fn cut(&self) {
        self.drain.cancel();
        self.cut.cancel();
    }

    pub(crate) fn abandon(&self) {
        self.cut();
        self.abandon.cancel();
    }

    /// Whether the server still takes requests.
    #[must_use]
    pub fn accepting(&self) -> bool {
        !self.drain.is_cancelled()
    }

    pub(crate) async fn draining(&self) {
        self.drain.cancelled().await;
    }

    pub(crate) async fn cutting(&self) {
        self.cut.cancelled().await;
    }

    /// What tells one request of the second stage. Waiting on it for each token touches nothing that requests share.
    #[must_use]
    pub fn cut_token(&self) -> CancellationToken {
        self.cut.child_token()
    }

    /// What tells one connection that no further request of it is waited for: one that came `late`, after the first stage
    /// began, stays until the last.
    pub(crate) fn last_request(&self, late: bool) -> CancellationToken {
        let stage = if late { &self.abandon } else { &self.drain };
        stage.child_token()
    }

    pub(crate) async fn abandoning(&self) {
        self.abandon.cancelled().await;
    }
}
