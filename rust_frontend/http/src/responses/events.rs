//! Streams of responses: live ones, and those that follow what runs in the background.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use octavo_api::ApiError;
use tokio::time::timeout;

use super::job::Job;
use super::store::Record;
use super::writer::Writer;
use crate::app::AppState;
use crate::live::Projection;
use crate::output::Piece;
use crate::outputs::Outputs;
use crate::sse::{respond, silence};

/// A response, and where it is kept when it has ended.
pub(super) struct Run {
    pub(super) writer: Writer,
    pub(super) state: Arc<AppState>,
    /// What is kept beside the response.
    pub(super) record: Record,
    /// Keeps it, at the end of a stream.
    keeping: Option<BoxFuture<'static, ()>>,
}

impl Run {
    pub(super) fn new(writer: Writer, state: Arc<AppState>, record: Record) -> Self {
        Self {
            writer,
            state,
            record,
            keeping: None,
        }
    }

    /// Keeps the response as it is now, if it is to be kept. One that could not be kept is answered all the same; the log
    /// says why.
    pub(super) fn keep(
        &mut self,
        events: Option<String>,
    ) -> impl Future<Output = ()> + Send + 'static {
        self.kept(events).map(drop)
    }

    /// As [`Self::keep`].
    ///
    /// # Errors
    /// It could not be kept.
    pub(super) fn kept(
        &mut self,
        events: Option<String>,
    ) -> impl Future<Output = Result<(), ApiError>> + Send + 'static {
        self.record.object = self.writer.object().clone();
        let record = self.record.object.store.then(|| Record {
            events,
            ..self.record.clone()
        });
        let state = Arc::clone(&self.state);
        async move {
            match record {
                Some(record) => state.responses.keep(record).await,
                None => Ok(()),
            }
        }
    }

    /// The events that were written and have not been taken.
    pub(super) fn written(&mut self) -> &mut BytesMut {
        self.writer.buffer()
    }
}

impl Projection for Run {
    fn piece(&mut self, _index: u32, piece: &mut Piece, _outputs: &Outputs) {
        if self.writer.take(piece) {
            self.keeping = Some(self.keep(None).boxed());
        }
    }

    fn silence(&mut self, paused: bool) {
        if !self.writer.begin() {
            self.writer.comment(silence(paused));
        }
    }

    fn fail(&mut self, error: &ApiError) {
        self.writer.fail(error);
        self.keeping = Some(self.keep(None).boxed());
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(keeping) = &mut self.keeping {
            ready!(keeping.poll_unpin(cx));
            self.keeping = None;
        }
        Poll::Ready(())
    }

    fn buffer(&mut self) -> &mut BytesMut {
        self.written()
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
