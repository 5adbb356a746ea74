//! What a client gathers of an answer: the same, streamed or not.

use std::collections::BTreeMap;

use octavo_api::{ChatChunk, ChatCompletion, FinishReason, Usage};
use serde_json::{Value, json};

use super::client::{Client, Reply};
use super::engine::Call;
use super::{Server, with_fields};

pub const CHAT: &str = "/v1/chat/completions";

/// All that was said.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    pub content: Option<String>,
    pub reasoning: Option<String>,
    pub reasoning_content: Option<String>,
    /// Name and arguments.
    pub calls: Vec<(String, String)>,
    pub ids: Vec<String>,
    pub finish: Option<FinishReason>,
    pub usage: Option<Usage>,
}

impl Answer {
    /// Without what may differ: ids, which are drawn, and whether nothing is null or empty.
    pub fn said(&self) -> Self {
        Self {
            content: self.content.clone().filter(|text| !text.is_empty()),
            ids: Vec::new(),
            ..self.clone()
        }
    }

    pub fn reasoning_tokens(&self) -> usize {
        let details = self
            .usage
            .as_ref()
            .unwrap()
            .completion_tokens_details
            .as_ref();
        details.unwrap().reasoning_tokens
    }

    /// What a reply says.
    pub fn of(reply: &Reply, streamed: bool) -> Self {
        if streamed {
            Self::streamed(reply)
        } else {
            Self::whole(reply)
        }
    }

    fn whole(reply: &Reply) -> Self {
        assert_eq!(reply.head.status, 200, "{}", reply.text());
        let answer: ChatCompletion = serde_json::from_slice(&reply.body).unwrap();
        let message = answer.choices[0].message.clone();
        assert!(
            message
                .tool_calls
                .iter()
                .all(|call| call.kind == "function")
        );
        Self {
            content: message.content,
            reasoning: message.reasoning,
            reasoning_content: message.reasoning_content,
            ids: message
                .tool_calls
                .iter()
                .map(|call| call.id.clone())
                .collect(),
            calls: message
                .tool_calls
                .into_iter()
                .map(|call| (call.function.name, call.function.arguments))
                .collect(),
            finish: answer.choices[0].finish_reason,
            usage: Some(answer.usage),
        }
    }

    /// Gathers a stream as strict clients do: a call's head comes once and first, indexes are 0, 1, ….
    fn streamed(reply: &Reply) -> Self {
        assert_eq!(reply.head.status, 200, "{}", reply.text());
        let events = reply.events();
        let (last, chunks) = events.split_last().unwrap();
        assert_eq!(last, "[DONE]");
        let mut answer = Self::default();
        let mut calls: BTreeMap<usize, (String, String)> = BTreeMap::new();
        for chunk in chunks {
            let chunk: ChatChunk = serde_json::from_str(chunk).unwrap();
            answer.usage = chunk.usage.or(answer.usage);
            let Some(choice) = chunk.choices.into_iter().next() else {
                continue;
            };
            assert_eq!(answer.finish, None, "something follows the end");
            answer.finish = choice.finish_reason;
            join(&mut answer.content, choice.delta.content);
            join(&mut answer.reasoning, choice.delta.reasoning);
            join(
                &mut answer.reasoning_content,
                choice.delta.reasoning_content,
            );
            for delta in choice.delta.tool_calls {
                if let Some(name) = delta.function.name {
                    assert_eq!(delta.index, calls.len(), "indexes grow by one");
                    assert_eq!(delta.kind.as_deref(), Some("function"));
                    answer.ids.push(delta.id.unwrap());
                    calls.insert(delta.index, (name, String::new()));
                } else {
                    assert_eq!((delta.id, delta.kind), (None, None), "the head comes once");
                }
                let (_, arguments) = calls.get_mut(&delta.index).unwrap();
                arguments.push_str(&delta.function.arguments);
            }
        }
        answer.calls = calls.into_values().collect();
        answer
    }
}

fn join(all: &mut Option<String>, more: Option<String>) {
    if let Some(more) = more {
        all.get_or_insert_default().push_str(&more);
    }
}

/// A request with these fields.
pub fn chat(fields: &Value) -> Value {
    let body = json!({"model": "test", "messages": [{"role": "user", "content": "hi"}]});
    with_fields(body, fields)
}

/// Sends a request and answers it with these tokens, so many a step.
pub async fn ask(
    server: &Server,
    client: &mut Client,
    fields: &Value,
    tokens: &[i32],
    step: usize,
    finish: &str,
) -> (Answer, Call) {
    client.post(CHAT, &chat(fields)).await;
    let play = server.script.play(tokens, step, 0, finish);
    let (reply, call) = tokio::join!(client.reply(), play);
    let streamed = fields.get("stream") == Some(&json!(true));
    (Answer::of(&reply, streamed), call)
}

/// Answers a request streamed and not, in steps of one token, several and all, and returns what all of them gather.
pub async fn always(server: &Server, fields: &Value, tokens: &[i32], finish: &str) -> Answer {
    let mut client = server.connect().await;
    let (whole, _) = ask(server, &mut client, fields, tokens, usize::MAX, finish).await;
    let mut streamed = fields.clone();
    streamed["stream"] = json!(true);
    streamed["stream_options"] = json!({"include_usage": true});
    for step in [1, 3, usize::MAX] {
        for fields in [fields, &streamed] {
            let (answer, _) = ask(server, &mut client, fields, tokens, step, finish).await;
            assert_eq!(answer.said(), whole.said(), "steps of {step}");
            assert_eq!(answer.ids.len(), answer.calls.len());
        }
    }
    whole
}
