//! What a client of `/v1/responses` gathers of an answer.

use octavo_api::{NumberedEvent, OutputItem, ResponseEvent, ResponseObject};
use serde_json::{Value, json};

use super::client::Reply;
use super::engine::Call;
use super::{Server, with_fields};

pub const PATH: &str = "/v1/responses";

/// A request with these fields.
pub fn body(fields: &Value) -> Value {
    with_fields(json!({"model": "test", "input": "hi"}), fields)
}

/// Asks, and answers with these tokens.
pub async fn ask(
    server: &Server,
    fields: &Value,
    ids: &[i32],
    step: usize,
    finish: &str,
) -> (Reply, Call) {
    let mut client = server.connect().await;
    client.post(PATH, &body(fields)).await;
    let play = server.script.play(ids, step, 0, finish);
    tokio::join!(client.reply(), play)
}

/// The response of an answer that is not streamed.
pub fn whole(reply: &Reply) -> ResponseObject {
    assert_eq!(reply.head.status, 200, "{}", reply.text());
    serde_json::from_slice(&reply.body).unwrap()
}

/// The events of a stream, numbered from `first`, each with a name that is its type.
pub fn events(reply: &Reply, first: u64) -> Vec<ResponseEvent> {
    assert_eq!(reply.head.status, 200, "{}", reply.text());
    let text = reply.text();
    let parts = text
        .split_terminator("\n\n")
        .filter(|part| !part.starts_with(':'));
    let read = |(number, part): (u64, &str)| {
        let (name, data) = part.split_once('\n').unwrap();
        let event: NumberedEvent =
            serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(event.sequence_number, number);
        assert_eq!(name, format!("event: {}", event.event.name()));
        event.event
    };
    (first..).zip(parts).map(read).collect()
}

/// Gathers a stream as strict clients do; returns the response that its last event tells.
pub fn gather(events: Vec<ResponseEvent>) -> ResponseObject {
    let mut events = events.into_iter();
    assert!(
        matches!(events.next(), Some(ResponseEvent::Created { response }) if response.output.is_empty())
    );
    assert!(matches!(
        events.next(),
        Some(ResponseEvent::InProgress { .. })
    ));
    let mut items: Vec<OutputItem> = Vec::new();
    let (mut open, mut joined, mut part) = (None, String::new(), false);
    let mut last = None;
    for event in events {
        assert!(last.is_none(), "something follows the end");
        match event {
            ResponseEvent::ItemAdded { output_index, item } => {
                assert_eq!((open.as_deref(), output_index), (None, items.len()));
                open = Some(item.id().to_owned());
                joined.clear();
            }
            ResponseEvent::PartAdded { item_id, .. } => {
                assert!(open.as_ref() == Some(&item_id) && !part);
                part = true;
            }
            ResponseEvent::TextDelta { item_id, delta, .. }
            | ResponseEvent::ReasoningDelta { item_id, delta, .. } => {
                assert!(open.as_ref() == Some(&item_id) && part && !delta.is_empty());
                joined.push_str(&delta);
            }
            ResponseEvent::ArgumentsDelta { item_id, delta, .. } => {
                assert!(open.as_ref() == Some(&item_id) && !part);
                joined.push_str(&delta);
            }
            ResponseEvent::TextDone { text, .. }
            | ResponseEvent::ReasoningDone { text, .. }
            | ResponseEvent::ArgumentsDone {
                arguments: text, ..
            } => assert_eq!(joined, text),
            ResponseEvent::PartDone { .. } => part = false,
            ResponseEvent::ItemDone { output_index, item } => {
                assert_eq!(output_index, items.len());
                assert!(open.take().as_deref() == Some(item.id()) && !part);
                items.push(item);
            }
            ResponseEvent::Completed { response }
            | ResponseEvent::Incomplete { response }
            | ResponseEvent::Failed { response } => last = Some(*response),
            other => panic!("{other:?}"),
        }
    }
    let response = last.unwrap();
    if response.error.is_none() {
        assert_eq!(response.output, items);
    }
    response
}
