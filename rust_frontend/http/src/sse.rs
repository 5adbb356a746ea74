//! Streams: the head, then one write for each batch of steps that was ready.
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
use http::{HeaderName, HeaderValue, header};
use http_body::Frame;
use octavo_api::{ApiError, ChatDelta};
use octavo_edge::{Refusal, contain_call, defect};
use octavo_parser::Event;
use octavo_render_http::events;

use crate::envelope::{EventWriter, Identity, Ids, Style};
use crate::output::Piece;
use crate::outputs::Outputs;
use crate::silence::Silence;

/// Bytes after which what is ready of several outputs waits for the next write.
const FULL: usize = 16 << 10;

/// Answers with a stream of events.
///
/// The head waits for the first piece, so that what the engine refuses has a status of its own; but no longer than
/// `keep_alive`.
pub(crate) async fn answer(
    outputs: Outputs,
    prompt_ids: Vec<Option<Vec<i32>>>,
    identity: &Identity,
    include_usage: bool,
    style: Style,
    keep_alive: Duration,
) -> Response {
    let mut stream = Stream::new(outputs, prompt_ids, identity, include_usage, keep_alive);
    stream.style = style;
    match poll_fn(|cx| stream.poll_turn(cx)).await {
        Ok(()) => respond(Body::new(stream)),
        Err(error) => Refusal(error).into_response(),
    }
}

pub(crate) fn respond(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Writes a comment, which clients skip.
pub(crate) fn write_comment(buffer: &mut BytesMut, text: &str) {
    buffer.extend_from_slice(b": ");
    buffer.extend_from_slice(text.as_bytes());
    buffer.extend_from_slice(b"\n\n");
}

/// Says in a comment why nothing comes.
pub(crate) fn silence(paused: bool) -> &'static str {
    if paused {
        "waiting for the engine to come back"
    } else {
        "working"
    }
}

struct Stream {
    /// Of the answer, for the log.
    id: String,
    writer: EventWriter,
    /// Of each choice: whether an event of it is written.
    begun: Vec<bool>,
    /// Of each choice, until they are written.
    prompt_ids: Vec<Option<Vec<i32>>>,
    include_usage: bool,
    style: Style,
    silence: Silence,
    /// What came last.
    piece: Piece,
    /// Dropped as soon as the last event is written.
    outputs: Option<Outputs>,
}

impl http_body::Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let several = self.outputs.as_ref().is_some_and(Outputs::several);
        let enough = if several { FULL } else { 1 };
        while self.outputs.is_some() && self.writer.len() < enough && self.turn(cx) {}
        if !self.writer.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(self.writer.take()))));
        }
        match self.outputs {
            Some(_) => Poll::Pending,
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.outputs.is_none() && self.writer.is_empty()
    }
}

impl Stream {
    fn new(
        outputs: Outputs,
        prompt_ids: Vec<Option<Vec<i32>>>,
        identity: &Identity,
        include_usage: bool,
        keep_alive: Duration,
    ) -> Self {
        Self {
            id: identity.id.clone(),
            writer: EventWriter::new(identity, include_usage),
            begun: vec![false; prompt_ids.len()],
            prompt_ids,
            include_usage,
            style: Style::default(),
            silence: Silence::new(keep_alive),
            piece: Piece::default(),
            outputs: Some(outputs),
        }
    }

    /// Writes what is ready of one output; a panic ends the stream with an error. Returns whether something was.
    fn turn(&mut self, cx: &mut Context<'_>) -> bool {
        let id = std::mem::take(&mut self.id);
        match contain_call(&id, || self.poll_turn(cx)) {
            Some(Poll::Pending) => {
                self.id = id;
                return false;
            }
            Some(Poll::Ready(Ok(()))) => {}
            Some(Poll::Ready(Err(error))) => self.fail(&error),
            None => {
                self.writer.take();
                self.fail(&defect());
            }
        }
        self.id = id;
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
                let index = index?;
                if self.style.counted {
                    self.writer.count(outputs.usage());
                }
                self.write_piece(index);
            }
            Poll::Pending => {
                ready!(self.silence.poll(cx));
                self.writer.comment(silence(outputs.paused()));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn write_piece(&mut self, index: u32) {
        let choice = index as usize;
        if let Some(begun) = self.begun.get_mut(choice).filter(|begun| !**begun) {
            *begun = true;
            if self.writer.begin(index, self.prompt_ids[choice].as_deref()) {
                self.prompt_ids[choice] = None;
            }
            if let Some(text) = &self.style.echo {
                self.writer.text(index, text, Ids::default());
            }
        }
        if !self.piece.events.is_empty() {
            self.write_events(index);
        } else if self.piece.shows_something() {
            let prompt = self.prompt_ids.get_mut(choice).and_then(Option::take);
            let ids = Ids {
                prompt: prompt.as_deref(),
                tokens: &self.piece.tokens,
                logprobs: self.piece.logprobs.as_ref(),
            };
            self.writer.text(index, &self.piece.text, ids);
        }
        if let Some(end) = self.piece.end.take() {
            self.writer.finish(index, end.reason, end.stop.as_ref());
            self.finish();
        }
    }

    /// Writes what follows the last choice, if this was it.
    fn finish(&mut self) {
        let Some(outputs) = self.outputs.take_if(|outputs| outputs.open() == 0) else {
            return;
        };
        if self.include_usage {
            self.writer.usage(&outputs.usage());
        }
        if let Some(timing) = outputs.timing().filter(|_| self.style.timed) {
            self.writer.timing(&timing);
        }
        self.writer.done();
    }

    /// Writes events; what belongs to the step's tokens goes with the first that shows something.
    fn write_events(&mut self, index: u32) {
        let mut ids = Ids {
            prompt: None,
            tokens: &self.piece.tokens,
            logprobs: self.piece.logprobs.as_ref(),
        };
        for event in self.piece.events.drain(..) {
            if let Event::ContentDelta { text } = &event {
                self.writer.text(index, text, std::mem::take(&mut ids));
            } else if let Some(delta) = events::delta(event, self.style.reasoning) {
                self.writer.delta(index, &delta, std::mem::take(&mut ids));
            }
        }
        if !ids.tokens.is_empty() || ids.logprobs.is_some() {
            self.writer.delta(index, &ChatDelta::default(), ids);
        }
    }

    fn fail(&mut self, error: &ApiError) {
        self.outputs = None;
        self.writer.error(error);
        self.writer.done();
    }
}

#[cfg(test)]
#[path = "../tests/support/model.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]
mod model;

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Instant;

    use http_body::Body as _;
    use octavo_api::{Body as JsonObject, CompletionRequest};
    use octavo_engine::{StepSender, channel};
    use octavo_render::{Limits, Renderer};
    use octavo_telemetry::Metrics;
    use octavo_wire::frontend::Finish;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::output::{Extras, Output, Place};
    use crate::route::Route;

    const LIMITS: Limits = Limits {
        max_model_len: 4096,
        vocab_size: 300,
    };

    /// A stream of so many completions, and who makes their tokens.
    fn stream(outputs: u32) -> (Vec<StepSender>, Stream) {
        let folder = model::folder();
        let renderer = Renderer::load(folder.path(), Some(1)).unwrap();
        let body = JsonObject::parse(br#"{"model": "m", "prompt": "hi"}"#).unwrap();
        let request = CompletionRequest::batch(body).unwrap().remove(0);
        let prepared = renderer.completion(&request, LIMITS).unwrap();
        let metrics = Metrics::new("m");
        let output = |index| {
            let (sender, steps) = channel();
            let output = Output::new(
                steps,
                renderer.output(&prepared.output),
                prepared.prompt.len(),
                Place { index, first: true },
                Extras::default(),
                metrics.request("m".to_owned(), Instant::now()),
                CancellationToken::new(),
            );
            (sender, output)
        };
        let (senders, outputs): (Vec<_>, Vec<_>) = (0..outputs).map(output).unzip();
        let identity = Identity {
            route: Route::Completion,
            id: "cmpl-1".to_owned(),
            created: 1,
            model: "m".to_owned(),
            parent: None,
        };
        let prompt_ids = vec![None; outputs.len()];
        let all = Outputs::new(outputs);
        let keep_alive = Duration::from_secs(15);
        (
            senders,
            Stream::new(all, prompt_ids, &identity, false, keep_alive),
        )
    }

    fn frame(stream: &mut Stream) -> Option<Bytes> {
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(stream).poll_frame(&mut cx) {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().ok(),
            _ => None,
        }
    }

    #[tokio::test]
    async fn a_token_is_one_write_and_no_allocation() {
        let (senders, mut stream) = stream(1);
        let id = model::tokens("a");
        for _ in 0..100 {
            senders[0].push(&id, None);
            let event = frame(&mut stream).unwrap();
            assert!(event.starts_with(b"data: {\"id\":\"cmpl-1\"") && event.ends_with(b"}\n\n"));
            assert!(frame(&mut stream).is_none());
        }
        let made = allocation_counter::measure(|| {
            for _ in 0..1000 {
                senders[0].push(&id, None);
                assert!(frame(&mut stream).is_some_and(|event| event.len() > 50));
                assert!(frame(&mut stream).is_none());
            }
        });
        assert_eq!(made.count_total, 0);
    }

    #[tokio::test]
    async fn what_is_ready_of_all_outputs_is_one_write() {
        let (senders, mut stream) = stream(3);
        assert!(frame(&mut stream).is_none());
        for sender in &senders {
            sender.push(&model::tokens("ab"), None);
        }
        let text = frame(&mut stream).unwrap();
        assert_eq!(
            text.windows(6).filter(|window| window == b"data: ").count(),
            3
        );
        assert!(frame(&mut stream).is_none());
        for sender in &senders {
            sender.finish(Finish::new("length"));
        }
        let text = frame(&mut stream).unwrap();
        assert!(text.ends_with(b"data: [DONE]\n\n") && stream.is_end_stream());
        assert!(frame(&mut stream).is_none());
    }
}
