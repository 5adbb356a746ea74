//! Streams whose events a projection writes: the loop around one output that all APIs with events of their own share.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use octavo_api::ApiError;
use octavo_edge::{Refusal, contain, defect};

use crate::output::{Output, Piece};
use crate::silence::Silence;
use crate::sse::respond;

/// Writes the events of one API into a buffer.
pub(crate) trait Projection: Send + 'static {
    /// Writes what a piece brings; the piece that ends the output brings the end of the stream. `cached` are the tokens
    /// of the prompt that came from the cache, where that is known.
    fn piece(&mut self, piece: Piece, cached: Option<usize>) -> impl Future<Output = ()> + Send;

    /// Writes a sign of life.
    fn silence(&mut self, paused: bool);

    /// Writes an error as the end of the stream.
    fn fail(&mut self, error: &ApiError) -> impl Future<Output = ()> + Send;

    /// Takes what was written since the last call.
    fn take(&mut self) -> Bytes;
}

/// Answers with a stream of events.
///
/// The head waits for the first piece, so that what the engine refuses has a status of its own; but no longer than
/// `keep_alive`.
pub(crate) async fn answer(
    mut output: Output,
    projection: impl Projection,
    id: &str,
    keep_alive: Duration,
) -> Response {
    let mut live = Live {
        id: id.into(),
        projection,
        silence: Silence::new(keep_alive),
        output: None,
    };
    let mut ended = false;
    match live.piece(&mut output).await {
        Some(Ok(piece)) => ended = live.write(piece, &output).await,
        Some(Err(error)) => return Refusal(error).into_response(),
        None => live.projection.silence(output.paused()),
    }
    live.output = (!ended).then(|| Box::new(output));
    let body = futures::stream::unfold(live, |mut live| async move {
        let bytes = live.next().await?;
        Some((Ok::<_, Infallible>(bytes), live))
    });
    respond(Body::from_stream(body))
}

struct Live<P> {
    /// Of the answer, for the log.
    id: Arc<str>,
    projection: P,
    silence: Silence,
    /// Dropped as soon as the last event is written.
    output: Option<Box<Output>>,
}

impl<P: Projection> Live<P> {
    /// Returns what is to be written next; `None` when all is.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let bytes = self.projection.take();
            if !bytes.is_empty() {
                return Some(bytes);
            }
            let mut output = self.output.take()?;
            let id = Arc::clone(&self.id);
            match contain(&id, self.advance(&mut output)).await {
                Some(false) => self.output = Some(output),
                Some(true) => {}
                None => {
                    self.projection.take();
                    self.projection.fail(&defect()).await;
                }
            }
        }
    }

    /// Waits for one piece; `None`: nothing has come for a while.
    async fn piece(&mut self, output: &mut Output) -> Option<Result<Piece, ApiError>> {
        let mut piece = Piece::default();
        let came = poll_fn(|cx| match output.poll_next(cx, &mut piece) {
            Poll::Ready(came) => Poll::Ready(Some(came)),
            Poll::Pending => self.silence.poll(cx).map(|()| None),
        });
        let came = came.await?;
        self.silence.heard();
        Some(came.map(|()| piece))
    }

    /// Waits for one piece and writes it. Returns whether it was the last.
    async fn advance(&mut self, output: &mut Output) -> bool {
        match self.piece(output).await {
            Some(Ok(piece)) => return self.write(piece, output).await,
            Some(Err(error)) => {
                self.projection.fail(&error).await;
                return true;
            }
            None => self.projection.silence(output.paused()),
        }
        false
    }

    async fn write(&mut self, piece: Piece, output: &Output) -> bool {
        let ended = piece.end.is_some();
        self.projection.piece(piece, output.cached_tokens()).await;
        ended
    }
}
