//! Streams: the head, then one write for each batch of steps that was ready.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use octavo_api::{ApiError, ChatDelta, ReasoningFields};
use octavo_edge::{Refusal, contain, defect};
use octavo_parser::Event;
use octavo_render_http::events;
use tokio::time::timeout;

use crate::envelope::{EventWriter, Identity, Ids};
use crate::output::{Output, Piece};

const CHOICE: u32 = 0;

/// Answers with a stream of events.
///
/// The head waits for the first piece, so that what the engine refuses has a status of its own; but no longer than
/// `keep_alive`.
pub(crate) async fn answer(
    mut output: Output,
    identity: &Identity,
    include_usage: bool,
    reasoning: ReasoningFields,
    keep_alive: Duration,
) -> Response {
    let mut stream = Stream {
        id: identity.id.as_str().into(),
        writer: EventWriter::new(identity, include_usage),
        prompt_ids: output.take_prompt_ids(),
        include_usage,
        reasoning,
        keep_alive,
        phase: Phase::Begin,
        output: None,
    };
    match timeout(keep_alive, output.next()).await {
        Ok(Ok(piece)) => stream.write_piece(piece),
        Ok(Err(error)) => return Refusal(error).into_response(),
        Err(_) => stream.writer.comment(silence(&output)),
    }
    stream.output = Some(output);
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
pub(crate) fn silence(output: &Output) -> &'static str {
    if output.paused() {
        "waiting for the engine to come back"
    } else {
        "working"
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No event is written.
    Begin,
    /// Text comes.
    Running,
    /// The last event is written.
    Ended,
}

struct Stream {
    /// Of the answer, for the log.
    id: Arc<str>,
    writer: EventWriter,
    /// Until they are written.
    prompt_ids: Option<Vec<i32>>,
    include_usage: bool,
    reasoning: ReasoningFields,
    keep_alive: Duration,
    phase: Phase,
    /// Dropped as soon as the last event is written.
    output: Option<Output>,
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
                self.output = None;
                self.writer.take();
                self.fail(&defect());
            }
        }
        if self.phase == Phase::Ended {
            self.output = None;
        }
        Some(self.writer.take())
    }

    /// Waits for one piece and writes it.
    async fn advance(&mut self) {
        let Some(output) = self.output.as_mut() else {
            self.phase = Phase::Ended;
            return;
        };
        match timeout(self.keep_alive, output.next()).await {
            Ok(Ok(piece)) => self.write_piece(piece),
            Ok(Err(error)) => self.fail(&error),
            Err(_) => self.writer.comment(silence(output)),
        }
    }

    fn write_piece(&mut self, piece: Piece) {
        if self.phase == Phase::Begin {
            self.phase = Phase::Running;
            if self.writer.begin(CHOICE, self.prompt_ids.as_deref()) {
                self.prompt_ids = None;
            }
        }
        if !piece.events.is_empty() {
            self.write_events(piece.events, &piece.tokens);
        } else if !piece.text.is_empty() || !piece.tokens.is_empty() {
            let prompt = self.prompt_ids.take();
            let ids = Ids {
                prompt: prompt.as_deref(),
                tokens: &piece.tokens,
            };
            self.writer.text(CHOICE, &piece.text, ids);
        }
        if let Some(end) = piece.end {
            self.writer.finish(CHOICE, end.reason, end.stop.as_ref());
            if self.include_usage {
                self.writer.usage(&end.usage);
            }
            self.writer.done();
            self.phase = Phase::Ended;
        }
    }

    /// Writes events; the ids of the step's tokens go with the first that shows something.
    fn write_events(&mut self, events: Vec<Event>, tokens: &[i32]) {
        let mut ids = Ids {
            prompt: None,
            tokens,
        };
        for event in events {
            if let Some(delta) = events::delta(event, self.reasoning) {
                self.writer.delta(CHOICE, &delta, std::mem::take(&mut ids));
            }
        }
        if !ids.tokens.is_empty() {
            self.writer.delta(CHOICE, &ChatDelta::default(), ids);
        }
    }

    fn fail(&mut self, error: &ApiError) {
        self.writer.error(error);
        self.writer.done();
        self.phase = Phase::Ended;
    }
}
