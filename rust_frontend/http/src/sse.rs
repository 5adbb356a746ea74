//! Streams: the head, then one write for each batch of steps that was ready.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use octavo_api::{ApiError, ChatDelta};
use octavo_edge::{Refusal, contain, defect};
use octavo_parser::Event;
use octavo_render_http::events;
use tokio::time::timeout;

use crate::envelope::{EventWriter, Identity, Ids, Style};
use crate::output::Piece;
use crate::outputs::Outputs;

/// Answers with a stream of events.
///
/// The head waits for the first piece, so that what the engine refuses has a status of its own; but no longer than
/// `keep_alive`.
pub(crate) async fn answer(
    mut outputs: Outputs,
    prompt_ids: Vec<Option<Vec<i32>>>,
    identity: &Identity,
    include_usage: bool,
    style: Style,
    keep_alive: Duration,
) -> Response {
    let mut stream = Stream {
        id: identity.id.as_str().into(),
        writer: EventWriter::new(identity, include_usage),
        begun: vec![false; prompt_ids.len()],
        prompt_ids,
        include_usage,
        style,
        keep_alive,
        phase: Phase::Running,
        outputs: None,
    };
    match timeout(keep_alive, outputs.next()).await {
        Ok(Ok((index, piece))) => stream.write_piece(index, piece, &outputs),
        Ok(Err(error)) => return Refusal(error).into_response(),
        Err(_) => stream.writer.comment(silence(outputs.paused())),
    }
    stream.outputs = Some(outputs);
    let body = futures::stream::unfold(stream, |mut stream| async move {
        let bytes = stream.next().await?;
        Some((Ok::<_, Infallible>(bytes), stream))
    });
    respond(Body::from_stream(body))
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

/// Says in a comment why nothing comes.
pub(crate) fn silence(paused: bool) -> &'static str {
    if paused {
        "waiting for the engine to come back"
    } else {
        "working"
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Text comes.
    Running,
    /// The last event is written.
    Ended,
}

struct Stream {
    /// Of the answer, for the log.
    id: Arc<str>,
    writer: EventWriter,
    /// Of each choice: whether an event of it is written.
    begun: Vec<bool>,
    /// Of each choice, until they are written.
    prompt_ids: Vec<Option<Vec<i32>>>,
    include_usage: bool,
    style: Style,
    keep_alive: Duration,
    phase: Phase,
    /// Dropped as soon as the last event is written.
    outputs: Option<Outputs>,
}

impl Stream {
    /// Returns what is to be written next; `None` when all is.
    async fn next(&mut self) -> Option<Bytes> {
        while self.writer.is_empty() {
            if self.phase == Phase::Ended {
                return None;
            }
            let id = self.id.clone();
            if contain(&id, self.advance()).await.is_none() {
                self.outputs = None;
                self.writer.take();
                self.fail(&defect());
            }
        }
        if self.phase == Phase::Ended {
            self.outputs = None;
        }
        Some(self.writer.take())
    }

    /// Waits for one piece and writes it.
    async fn advance(&mut self) {
        let Some(mut outputs) = self.outputs.take() else {
            self.phase = Phase::Ended;
            return;
        };
        match timeout(self.keep_alive, outputs.next()).await {
            Ok(Ok((index, piece))) => self.write_piece(index, piece, &outputs),
            Ok(Err(error)) => self.fail(&error),
            Err(_) => self.writer.comment(silence(outputs.paused())),
        }
        self.outputs = Some(outputs);
    }

    fn write_piece(&mut self, index: u32, piece: Piece, outputs: &Outputs) {
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
        let logprobs = piece.logprobs.as_ref();
        if !piece.events.is_empty() {
            let ids = Ids {
                prompt: None,
                tokens: &piece.tokens,
                logprobs,
            };
            self.write_events(index, piece.events, ids);
        } else if !piece.text.is_empty() || !piece.tokens.is_empty() || logprobs.is_some() {
            let prompt = self.prompt_ids.get_mut(choice).and_then(Option::take);
            let ids = Ids {
                prompt: prompt.as_deref(),
                tokens: &piece.tokens,
                logprobs,
            };
            self.writer.text(index, &piece.text, ids);
        }
        if let Some(end) = piece.end {
            self.writer.finish(index, end.reason, end.stop.as_ref());
            if outputs.open() == 0 {
                self.finish(outputs);
            }
        }
    }

    /// Writes what follows the last choice.
    fn finish(&mut self, outputs: &Outputs) {
        if self.include_usage {
            self.writer.usage(&outputs.usage());
        }
        self.writer.done();
        self.phase = Phase::Ended;
    }

    /// Writes events; what belongs to the step's tokens goes with the first that shows something.
    fn write_events(&mut self, index: u32, events: Vec<Event>, mut ids: Ids<'_>) {
        for event in events {
            if let Some(delta) = events::delta(event, self.style.reasoning) {
                self.writer.delta(index, &delta, std::mem::take(&mut ids));
            }
        }
        if !ids.tokens.is_empty() || ids.logprobs.is_some() {
            self.writer.delta(index, &ChatDelta::default(), ids);
        }
    }

    fn fail(&mut self, error: &ApiError) {
        self.writer.error(error);
        self.writer.done();
        self.phase = Phase::Ended;
    }
}
