//! What a streamed token costs each API: one write, and no allocation.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::Body as _;
use octavo_api::{Body as JsonObject, CompletionRequest, ResponsesRequest};
use octavo_engine::{StepSender, channel};
use octavo_render::{Limits, Renderer};
use octavo_telemetry::Metrics;
use octavo_wire::frontend::Finish;
use tokio_util::sync::CancellationToken;

use crate::chunks::Chunks;
use crate::envelope::{Identity, Style};
use crate::inference::{Counted, Events as IdEvents};
use crate::live::{Projection, Stream};
use crate::messages::Events as MessageEvents;
use crate::model;
use crate::output::{Extras, Output, Place, TokenIds};
use crate::outputs::Outputs;
use crate::responses::Writer;
use crate::route::Route;

const LIMITS: Limits = Limits {
    max_model_len: 4096,
    vocab_size: 300,
};

/// So many outputs, and who makes their tokens; `ids`: token ids are asked for.
fn outputs(count: u32, ids: bool) -> (Vec<StepSender>, Outputs) {
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
            Extras {
                ids: ids.then(|| TokenIds::new(prepared.prompt_ids())),
                ..Extras::default()
            },
            metrics.request("m".to_owned(), Instant::now()),
            CancellationToken::new(),
        );
        (sender, output)
    };
    let (senders, all): (Vec<_>, Vec<_>) = (0..count).map(output).unzip();
    (senders, Outputs::new(all))
}

fn identity(route: Route) -> Identity {
    Identity {
        route,
        id: "id-1".to_owned(),
        created: 1,
        model: "m".to_owned(),
        parent: None,
    }
}

fn chunks(route: Route, count: usize, style: Style) -> Chunks {
    Chunks::new(&identity(route), vec![None; count], false, style)
}

fn ids(each: bool) -> IdEvents {
    IdEvents::new(&identity(Route::Chat), Counted { last: true, each })
}

fn response() -> Writer {
    let body = JsonObject::parse(br#"{"model": "m", "input": "hi"}"#).unwrap();
    let mut object = ResponsesRequest::from_body(body).unwrap().object;
    object.id = "resp_1".to_owned();
    Writer::new(object, true, false, true)
}

/// A response that is not kept anywhere.
impl Projection for Writer {
    fn piece(&mut self, _index: u32, piece: &mut crate::output::Piece, _outputs: &Outputs) {
        self.take(piece);
    }

    fn silence(&mut self, _paused: bool) {}

    fn fail(&mut self, _error: &octavo_api::ApiError) {}

    fn buffer(&mut self) -> &mut bytes::BytesMut {
        self.buffer()
    }
}

fn stream<P: Projection>(outputs: Outputs, projection: P) -> Stream<P> {
    Stream::new(outputs, projection, "id-1", Duration::from_secs(15))
}

fn frame<P: Projection>(stream: &mut Stream<P>) -> Option<Bytes> {
    let mut cx = Context::from_waker(Waker::noop());
    match Pin::new(stream).poll_frame(&mut cx) {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().ok(),
        _ => None,
    }
}

/// Streams tokens one by one; `most`: how often memory may be had for 1,000 of them.
fn costs(named: &str, asks_ids: bool, projection: impl Projection, most: u64) {
    let (senders, outputs) = outputs(1, asks_ids);
    let mut stream = stream(outputs, projection);
    let id = model::tokens("a");
    let mut token = || {
        senders[0].push(&id, None);
        let event = frame(&mut stream);
        assert!(event.is_some_and(|event| event.len() > 50), "{named}");
        assert!(frame(&mut stream).is_none(), "{named}");
    };
    (0..100).for_each(|_| token());
    let made = allocation_counter::measure(|| (0..1000).for_each(|_| token()));
    assert!(
        made.count_total <= most,
        "{named}: {} allocations",
        made.count_total
    );
}

#[tokio::test]
async fn a_token_is_one_write_and_no_allocation() {
    let style = Style::default;
    costs(
        "completion",
        false,
        chunks(Route::Completion, 1, style()),
        0,
    );
    costs("chat", false, chunks(Route::Chat, 1, style()), 0);
    let counted = Style {
        counted: true,
        ..style()
    };
    costs("counted", false, chunks(Route::Chat, 1, counted), 0);
    costs("with ids", true, chunks(Route::Chat, 1, style()), 0);
    costs("ids", true, ids(false), 0);
    costs("ids, counted", true, ids(true), 0);
    let message = MessageEvents::new(&identity(Route::Chat), "1", 3, true);
    costs("message", false, message, 0);
    // Its text is kept whole, and doubles its room now and then.
    costs("response", false, response(), 8);
}

#[tokio::test]
async fn an_event_is_as_every_event_of_its_stream() {
    let (senders, outputs) = outputs(1, false);
    let mut stream = stream(outputs, chunks(Route::Completion, 1, Style::default()));
    for _ in 0..3 {
        senders[0].push(&model::tokens("a"), None);
        let event = frame(&mut stream).unwrap();
        assert!(event.starts_with(b"data: {\"id\":\"id-1\"") && event.ends_with(b"}\n\n"));
    }
}

#[tokio::test]
async fn what_is_ready_of_all_outputs_is_one_write() {
    let (senders, outputs) = outputs(3, false);
    let mut stream = stream(outputs, chunks(Route::Completion, 3, Style::default()));
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
