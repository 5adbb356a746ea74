//! What a client of Anthropic's API gathers of an answer.

use octavo_api::{BlockDelta, ContentBlock, MessageAnswer, MessageEvent};
use serde_json::{Value, json};

use super::client::Reply;
use super::engine::Call;
use super::{Server, with_fields};

pub const PATH: &str = "/v1/messages";

/// A request with these fields.
pub fn body(fields: &Value) -> Value {
    let messages = json!([{"role": "user", "content": "Weather in Lima?"}]);
    let body = json!({"model": "test", "max_tokens": 50, "messages": messages});
    with_fields(body, fields)
}

/// The events of a stream, each with a name that is its type.
pub fn events(reply: &Reply) -> Vec<MessageEvent> {
    assert_eq!(reply.head.status, 200, "{}", reply.text());
    let read = |event: &str| {
        let (name, data) = event.split_once('\n').unwrap();
        let event: MessageEvent =
            serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name, format!("event: {}", event.name()));
        event
    };
    reply.text().split_terminator("\n\n").map(read).collect()
}

/// Adds to a block; a call's input comes as text.
fn grow(block: &mut ContentBlock, delta: BlockDelta, input: &mut String) {
    match (block, delta) {
        (ContentBlock::Text { text }, BlockDelta::TextDelta { text: more }) => *text += &more,
        (ContentBlock::Thinking { thinking, .. }, BlockDelta::ThinkingDelta { thinking: more }) => {
            *thinking += &more;
        }
        (
            ContentBlock::Thinking { signature, .. },
            BlockDelta::SignatureDelta { signature: all },
        ) => {
            *signature = all;
        }
        (ContentBlock::ToolUse { .. }, BlockDelta::InputJsonDelta { partial_json }) => {
            *input += &partial_json
        }
        other => panic!("{other:?}"),
    }
}

/// Gathers a stream as strict clients do.
pub fn gather(events: Vec<MessageEvent>) -> MessageAnswer {
    let mut events = events
        .into_iter()
        .filter(|event| *event != MessageEvent::Ping);
    let Some(MessageEvent::MessageStart {
        message: mut answer,
    }) = events.next()
    else {
        panic!("no message_start");
    };
    assert_eq!((answer.stop_reason, answer.content.len()), (None, 0));
    let (mut open, mut input) = (None, String::new());
    let mut ended = false;
    for event in events {
        match event {
            MessageEvent::ContentBlockStart {
                index,
                content_block,
            } => {
                assert_eq!((open, index), (None, answer.content.len()));
                open = Some(index);
                input.clear();
                answer.content.push(content_block);
            }
            MessageEvent::ContentBlockDelta { index, delta } => {
                assert_eq!(open, Some(index));
                grow(answer.content.last_mut().unwrap(), delta, &mut input);
            }
            MessageEvent::ContentBlockStop { index } => {
                assert_eq!(open.take(), Some(index));
                if let Some(ContentBlock::ToolUse { input: all, .. }) = answer.content.last_mut() {
                    assert_eq!(*all, json!({}));
                    *all = serde_json::from_str(&input).unwrap();
                }
            }
            MessageEvent::MessageDelta { delta, usage } => {
                assert_eq!((open, answer.stop_reason), (None, None));
                answer.stop_reason = Some(delta.stop_reason);
                answer.stop_sequence = delta.stop_sequence;
                let begun = std::mem::replace(&mut answer.usage, usage);
                assert_eq!(begun.output_tokens, 0);
                assert_eq!(begun.input_tokens, usage.input_tokens);
            }
            MessageEvent::MessageStop => {
                assert!(!ended && answer.stop_reason.is_some());
                ended = true;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(ended);
    answer
}

/// Asks, and answers with these tokens, so many a step.
pub async fn ask(
    server: &Server,
    fields: &Value,
    ids: &[i32],
    step: usize,
    finish: &str,
) -> (Reply, Call) {
    let mut client = server.connect().await;
    client.post(PATH, &body(fields)).await;
    let play = server.script.play(ids, step, 16, finish);
    tokio::join!(client.reply(), play)
}

/// Asks streamed and not, in steps of one token, several and all; returns what all of them gather, ids replaced.
pub async fn always(server: &Server, fields: &Value, ids: &[i32], finish: &str) -> MessageAnswer {
    let plain = |mut answer: MessageAnswer| {
        assert!(answer.id.starts_with("msg_"));
        answer.id = String::new();
        for block in &mut answer.content {
            if let ContentBlock::ToolUse { id, .. } = block {
                assert!(!id.is_empty());
                *id = String::new();
            }
        }
        answer
    };
    let mut first: Option<MessageAnswer> = None;
    for step in [1, 3, usize::MAX] {
        for stream in [false, true] {
            let mut fields = fields.clone();
            fields["stream"] = json!(stream);
            let (reply, _) = ask(server, &fields, ids, step, finish).await;
            let answer = if stream {
                gather(events(&reply))
            } else {
                assert_eq!(reply.head.status, 200, "{}", reply.text());
                serde_json::from_slice(&reply.body).unwrap()
            };
            let answer = plain(answer);
            let first = first.get_or_insert_with(|| answer.clone());
            assert_eq!(answer, *first, "stream {stream}, steps of {step}");
        }
    }
    first.unwrap()
}
