//! Streams of responses: live ones, and those that follow what runs in the background.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use octavo_api::ApiError;
use tokio::time::timeout;

use super::Responses;
use super::job::Job;
use super::store::Record;
use super::writer::Writer;
use crate::app::AppState;
use crate::live::Projection;
use crate::output::Piece;
use crate::sse::{respond, silence};

/// A response, and where it is kept when it has ended.
pub(super) struct Run {
    pub(super) writer: Writer,
    pub(super) state: Arc<AppState>,
    /// What is kept beside the response.
    pub(super) record: Record,
}

impl Run {
    fn responses(&self) -> &Responses {
        &self.state.responses
    }

    /// Keeps the response as it is now, if it is to be kept.
    pub(super) async fn keep(&mut self, events: Option<String>) -> Result<(), ApiError> {
        self.record.object = self.writer.object().clone();
        if !self.record.object.store {
            return Ok(());
        }
        let mut record = self.record.clone();
        record.events = events;
        self.responses().keep(record).await
    }
}

impl Projection for Run {
    async fn piece(&mut self, piece: Piece, _cached: Option<usize>) {
        self.writer.begin();
        self.writer.piece(&piece.text, piece.events, piece.logprobs);
        if let Some(end) = &piece.end {
            self.writer.finish(end);
            // A response that could not be kept is answered all the same; the log says why.
            let _ = self.keep(None).await;
        }
    }

    fn silence(&mut self, paused: bool) {
        if !self.writer.begin() {
            self.writer.comment(silence(paused));
        }
    }

    async fn fail(&mut self, error: &ApiError) {
        self.writer.fail(error);
        let _ = self.keep(None).await;
    }

    fn take(&mut self) -> Bytes {
        self.writer.take()
    }
}

/// Follows what runs in the background, behind the event with this number.
pub(super) fn follow(job: Arc<Job>, after: Option<u64>, keep_alive: Duration) -> Response {
    let begin = after.map_or(0, |after| job.behind(after));
    let body = futures::stream::unfold((job, begin), move |(job, at)| async move {
        loop {
            let changed = job.changed.notified();
            if let Some(bytes) = job.from(at) {
                let next = at + bytes.len();
                return Some((Ok::<_, Infallible>(bytes), (job.clone(), next)));
            }
            if job.ended() {
                return None;
            }
            if timeout(keep_alive, changed).await.is_err() {
                let comment = Bytes::from_static(b": working\n\n");
                return Some((Ok(comment), (job.clone(), at)));
            }
        }
    });
    respond(Body::from_stream(body))
}

/// Answers with a stream that has ended, behind the event with this number.
pub(super) fn again(events: &str, after: Option<u64>) -> Response {
    let skipped = after.map_or(0, |after| {
        usize::try_from(after)
            .unwrap_or(usize::MAX)
            .saturating_add(1)
    });
    let rest: String = events.split_inclusive("\n\n").skip(skipped).collect();
    respond(Body::from(rest))
}
