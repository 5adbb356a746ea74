//! Streams: the head, then one write for each batch of steps that was ready. What the events look like is a projection's.
//!
//! The connection asks for more only when its socket takes more; meanwhile tokens merge in the `StepStream`. A token that
//! comes costs no allocation here: piece, text and buffer serve all of them.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::{Bytes, BytesMut};
use http_body::Frame;
use octavo_api::ApiError;
use octavo_edge::{Refusal, contain_call, defect};

use crate::output::Piece;
use crate::outputs::Outputs;
use crate::silence::Silence;
use crate::sse::respond;

/// Where a projection's buffer begins: a page holds the events of a few steps, after which it is used again.
pub(crate) const BUFFER: usize = 4096;

/// Bytes after which what is ready of several outputs waits for the next write.
const FULL: usize = 16 << 10;

/// Writes the events of one API into a buffer.
pub(crate) trait Projection: Send + Unpin + 'static {
    /// Writes what a piece brings to the output with this index, and the end of the stream behind the last piece of all.
    /// It may take things out of the piece, whose memory is used again.
    fn piece(&mut self, index: u32, piece: &mut Piece, outputs: &Outputs);

    /// Writes a sign of life.
    fn silence(&mut self, paused: bool);

    /// Writes an error as the end of the stream.
    fn fail(&mut self, error: &ApiError);

    /// Waits for what must be done before the end of the stream goes out.
    fn poll_end(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// What is written and has not gone out.
    fn buffer(&mut self) -> &mut BytesMut;
}

/// Answers with a stream of events; `id` names it in the log.
///
/// The head waits for the first piece, so that what the engine refuses has a status of its own; but no longer than
/// `keep_alive`.
pub(crate) async fn answer(
    outputs: Outputs,
    projection: impl Projection,
    id: &str,
    keep_alive: Duration,
) -> Response {
    let mut stream = Stream::new(outputs, projection, id, keep_alive);
    match poll_fn(|cx| stream.poll_turn(cx)).await {
        Ok(()) => respond(Body::new(stream)),
        Err(error) => Refusal(error).into_response(),
    }
}

/// The body of such an answer.
pub(crate) struct Stream<P> {
    id: String,
    projection: P,
    silence: Silence,
    /// What came last.
    piece: Piece,
    /// Dropped as soon as the last event is written.
    outputs: Option<Outputs>,
    /// Whether all that was written has gone out, and nothing follows.
    over: bool,
}

impl<P: Projection> http_body::Body for Stream<P> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let several = self.outputs.as_ref().is_some_and(Outputs::several);
        let enough = if several { FULL } else { 1 };
        while self.outputs.is_some() && self.projection.buffer().len() < enough && self.turn(cx) {}
        if self.outputs.is_none() && !self.over {
            ready!(self.projection.poll_end(cx));
            self.over = true;
        }
        let written = self.projection.buffer();
        if !written.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(written.split().freeze()))));
        }
        if self.over {
            Poll::Ready(None)
        } else {
            Poll::Pending
        }
    }

    fn is_end_stream(&self) -> bool {
        // The end always comes with events, which are taken at once.
        self.over
    }
}

impl<P: Projection> Stream<P> {
    pub(crate) fn new(outputs: Outputs, projection: P, id: &str, keep_alive: Duration) -> Self {
        Self {
            id: id.to_owned(),
            projection,
            silence: Silence::new(keep_alive),
            piece: Piece::default(),
            outputs: Some(outputs),
            over: false,
        }
    }

    /// Writes what is ready of one output; a panic ends the stream with an error. Returns whether something was.
    fn turn(&mut self, cx: &mut Context<'_>) -> bool {
        let id = std::mem::take(&mut self.id);
        let turned = contain_call(&id, || self.poll_turn(cx));
        self.id = id;
        match turned {
            Some(Poll::Pending) => return false,
            Some(Poll::Ready(Ok(()))) => {}
            Some(Poll::Ready(Err(error))) => self.fail(&error),
            None => {
                self.projection.buffer().clear();
                self.fail(&defect());
            }
        }
        true
    }

    /// Waits for one piece, or a while without any, and writes it.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ApiError>> {
        let Some(outputs) = &mut self.outputs else {
            return Poll::Ready(Ok(()));
        };
        match outputs.poll_next(cx, &mut self.piece) {
            Poll::Ready(index) => {
                self.silence.heard();
                self.projection.piece(index?, &mut self.piece, outputs);
                if outputs.open() == 0 {
                    self.outputs = None;
                }
            }
            Poll::Pending => {
                ready!(self.silence.poll(cx));
                self.projection.silence(outputs.paused());
            }
        }
        Poll::Ready(Ok(()))
    }

    fn fail(&mut self, error: &ApiError) {
        self.outputs = None;
        self.projection.fail(error);
    }
}
