//! What clients read: the same text, end and usage, streamed or not, however the tokens come.

#![allow(clippy::unwrap_used)]

mod support;

use octavo_api::{ChatChunk, ChatCompletion, Completion, FinishReason, StopReason};
use octavo_wire::frontend::Finish;
use serde_json::{Value, json};
use support::client::{Client, Reply, events};
use support::engine::Call;
use support::model::{END, tokens};
use support::{Server, within};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const TEXT: &str = "Hello, \"w\u{f6}rld\"\n字 😀 \\ end";

fn chat(fields: Value) -> Value {
    let mut body = json!({"model": "test", "messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    body
}

/// Answers a request with a text, so many bytes a step.
async fn answer(server: &Server, text: &str, bytes: usize, reason: &str) -> Call {
    let call = server.script.call().await;
    for (index, part) in tokens(text).chunks(bytes).enumerate() {
        call.steps.push(part, (index == 0).then_some(3));
        tokio::task::yield_now().await;
    }
    call.finish(reason);
    call
}

fn chunks(reply: &Reply) -> Vec<ChatChunk> {
    assert_eq!(
        reply.head.headers["content-type"],
        "text/event-stream; charset=utf-8"
    );
    assert_eq!(reply.head.headers["cache-control"], "no-cache");
    assert_eq!(reply.head.headers["x-accel-buffering"], "no");
    let events = reply.events();
    let (last, chunks) = events.split_last().unwrap();
    assert_eq!(last, "[DONE]");
    chunks
        .iter()
        .map(|chunk| serde_json::from_str(chunk).unwrap())
        .collect()
}

fn text_of(chunks: &[ChatChunk]) -> String {
    let choices = chunks.iter().flat_map(|chunk| &chunk.choices);
    choices
        .filter_map(|choice| choice.delta.content.clone())
        .collect()
}

#[test]
fn a_stream_is_the_whole_answer_in_pieces() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        client.post(CHAT, &chat(json!({"model": "alias"}))).await;
        let (whole, call) = tokio::join!(client.reply(), answer(&server, TEXT, 100, "stop"));
        let whole: ChatCompletion = serde_json::from_slice(&whole.body).unwrap();
        assert!(whole.id.starts_with("chatcmpl-"));
        assert_eq!(call.request.name, whole.id);
        assert_eq!(whole.model, "alias");
        assert_eq!(whole.choices[0].message.content.as_deref(), Some(TEXT));

        for bytes in [1, 2, 3, 5, 100] {
            let fields = json!({"stream": true, "stream_options": {"include_usage": true}});
            client.post(CHAT, &chat(fields)).await;
            let (reply, _) = tokio::join!(client.reply(), answer(&server, TEXT, bytes, "stop"));
            let chunks = chunks(&reply);
            assert_eq!(text_of(&chunks), TEXT);
            assert!(
                chunks
                    .iter()
                    .all(|chunk| chunk.id == chunks[0].id && chunk.model == "test")
            );
            assert_eq!(
                chunks[0].choices[0].delta.role.as_deref(),
                Some("assistant")
            );
            assert!(
                chunks[1..]
                    .iter()
                    .flat_map(|chunk| &chunk.choices)
                    .all(|choice| choice.delta.role.is_none())
            );
            let [middle @ .., finish, usage] = chunks.as_slice() else {
                panic!("{chunks:?}")
            };
            assert!(
                middle
                    .iter()
                    .all(|chunk| chunk.choices[0].finish_reason.is_none())
            );
            assert_eq!(
                finish.choices[0].finish_reason,
                whole.choices[0].finish_reason
            );
            assert_eq!(usage.choices, []);
            assert_eq!(usage.usage.as_ref(), Some(&whole.usage));
        }
    });
}

#[test]
fn the_usage_counts_tokens_and_cache_hits() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        client
            .post(
                COMPLETIONS,
                &json!({"model": "test", "prompt": "four", "max_tokens": 9}),
            )
            .await;
        let (reply, call) = tokio::join!(client.reply(), answer(&server, "seven..", 2, "length"));
        assert_eq!(call.request.prompt, tokens("four"));
        assert_eq!(call.request.sampling.max_tokens, 9);
        let reply: Completion = serde_json::from_slice(&reply.body).unwrap();
        assert!(reply.id.starts_with("cmpl-"));
        assert_eq!(reply.choices[0].finish_reason, Some(FinishReason::Length));
        let usage = serde_json::to_value(reply.usage.unwrap()).unwrap();
        let details = json!({"cached_tokens": 3, "created_cache_tokens": 0});
        assert_eq!(
            usage,
            json!({"prompt_tokens": 4, "completion_tokens": 7, "total_tokens": 11, "prompt_tokens_details": details})
        );
        assert_eq!(server.metric("prompt_tokens_total"), 4.0);
        assert_eq!(server.metric("prompt_tokens_cached_total"), 3.0);
        assert_eq!(server.metric("generation_tokens_total"), 7.0);
        assert_eq!(server.metric("request_generation_tokens_count"), 1.0);
    });
}

#[test]
fn completions_stream_text() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        client
            .post(COMPLETIONS, &json!({"prompt": "a", "stream": true}))
            .await;
        let (reply, _) = tokio::join!(client.reply(), answer(&server, TEXT, 4, "length"));
        let events = reply.events();
        let (last, chunks) = events.split_last().unwrap();
        assert_eq!(last, "[DONE]");
        let chunks: Vec<Completion> = chunks
            .iter()
            .map(|chunk| serde_json::from_str(chunk).unwrap())
            .collect();
        let text: String = chunks
            .iter()
            .map(|chunk| chunk.choices[0].text.as_str())
            .collect();
        assert_eq!(text, TEXT);
        assert_eq!(
            chunks.last().unwrap().choices[0].finish_reason,
            Some(FinishReason::Length)
        );
        assert!(chunks.iter().all(|chunk| chunk.usage.is_none()));
    });
}

/// Streams "one two STOP three" one byte a step, without an end by the engine.
async fn stopped(server: &Server, client: &mut Client, stream: bool) -> (Reply, Call) {
    let fields = json!({"stop": ["STOP", "zzz"], "stream": stream});
    client.post(CHAT, &chat(fields)).await;
    let engine = async {
        let mut call = server.script.call().await;
        for token in tokens("one two STOP three") {
            call.steps.push(&[token], None);
            tokio::task::yield_now().await;
        }
        (&mut call.aborted).await.unwrap();
        call
    };
    tokio::join!(client.reply(), engine)
}

#[test]
fn trap_stop_strings_over_many_tokens_end_the_request() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        let (whole, _) = stopped(&server, &mut client, false).await;
        let whole: ChatCompletion = serde_json::from_slice(&whole.body).unwrap();
        assert_eq!(
            whole.choices[0].message.content.as_deref(),
            Some("one two ")
        );
        assert_eq!(whole.choices[0].finish_reason, Some(FinishReason::Stop));
        assert_eq!(
            whole.choices[0].stop_reason,
            Some(StopReason::Text("STOP".to_owned()))
        );
        assert_eq!(whole.usage.completion_tokens, 12);

        let (reply, _) = stopped(&server, &mut client, true).await;
        let chunks = chunks(&reply);
        assert_eq!(text_of(&chunks), "one two ");
        let last = &chunks.last().unwrap().choices[0];
        assert_eq!(last.finish_reason, Some(FinishReason::Stop));
        assert_eq!(last.stop_reason, Some(StopReason::Text("STOP".to_owned())));
        assert_eq!(server.finished("stop"), 2.0);
    });
}

#[test]
fn a_stop_token_is_not_shown() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        client.post(CHAT, &chat(json!({}))).await;
        let engine = async {
            let call = server.script.call().await;
            assert!(call.request.sampling.stop_token_ids.contains(&END));
            call.steps
                .push(&[&tokens("done")[..], &[END]].concat(), None);
            let mut finish = Finish::new("stop");
            finish.stop_token = Some(END);
            call.steps.finish(finish);
        };
        let (reply, ()) = tokio::join!(client.reply(), engine);
        let reply: ChatCompletion = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(reply.choices[0].message.content.as_deref(), Some("done"));
        assert_eq!(reply.usage.completion_tokens, 5);
    });
}

#[test]
fn steps_that_are_ready_go_out_in_one_write() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        client.post(CHAT, &chat(json!({"stream": true}))).await;
        let call = server.script.call().await;
        call.say("a");
        client.head().await;
        let first = events(&client.text_chunk().await);
        assert_eq!(first.len(), 2, "the role and the first text: {first:?}");
        call.say("b");
        assert_eq!(events(&client.text_chunk().await).len(), 1);
        call.say("c");
        call.finish("stop");
        let mut rest = events(&client.text_chunk().await);
        if rest.len() == 1 {
            rest.extend(events(&client.text_chunk().await)); // "c" was read before the end came
        }
        assert_eq!(rest.len(), 3, "text, end and [DONE]: {rest:?}");
        assert!(client.chunk().await.is_none());
    });
}

#[test]
fn a_character_is_sent_when_it_is_complete() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        client.post(CHAT, &chat(json!({"stream": true}))).await;
        let call = server.script.call().await;
        let bytes = tokens("😀");
        call.steps.push(&bytes[..2], None);
        client.head().await;
        let first = events(&client.text_chunk().await);
        assert_eq!(first.len(), 1, "the role alone: {first:?}");
        call.steps.push(&bytes[2..], None);
        let second = client.text_chunk().await;
        assert!(second.contains("😀"), "{second}");
    });
}
