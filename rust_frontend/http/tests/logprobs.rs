//! Log probabilities over HTTP: what stands for bytes, and in which chunk they come.

#![allow(clippy::unwrap_used)]

mod support;

use octavo_api::{ChatChunk, ChatCompletion, ChatLogprob};
use octavo_engine::News;
use octavo_wire::frontend::Logprobs;
use octavo_wire::{Floats, Tokens};
use serde_json::{Value, json};
use support::answer::{CHAT, chat};
use support::client::{Client, Reply};
use support::model::{WORD, tokens};
use support::{Server, within};

/// What the engine says of these tokens: -1 of each itself, -2, -3, … of `others`, which are the same for all.
fn rows(tokens: &[i32], others: &[i32]) -> Logprobs {
    let row = |token: &i32| [&[*token], others].concat();
    let width = u16::try_from(1 + others.len()).unwrap();
    let values = tokens
        .iter()
        .flat_map(|_| (1..=width).map(|place| -f32::from(place)));
    Logprobs {
        width: width.into(),
        ids: Tokens(tokens.iter().flat_map(row).collect()),
        values: Floats(values.collect()),
        ranks: Tokens(vec![1; tokens.len()]),
    }
}

/// Sends a chat and answers it with these tokens, so many a step.
async fn ask(
    server: &Server,
    client: &mut Client,
    fields: &Value,
    tokens: &[i32],
    others: &[i32],
    step: usize,
) -> Reply {
    client.post(CHAT, &chat(fields)).await;
    let play = async {
        let call = server.script.call().await;
        for part in tokens.chunks(step) {
            call.steps.deliver(News {
                tokens: part,
                cached_tokens: Some(0),
                logprobs: Some(rows(part, others)),
                ..News::default()
            });
            tokio::task::yield_now().await;
        }
        call.finish("stop");
    };
    let (reply, ()) = tokio::join!(client.reply(), play);
    assert_eq!(reply.head.status, 200, "{}", reply.text());
    reply
}

fn entries(reply: &Reply) -> Vec<ChatLogprob> {
    let answer: ChatCompletion = serde_json::from_slice(&reply.body).unwrap();
    answer.choices[0].logprobs.clone().unwrap().content
}

fn bytes(entries: &[ChatLogprob]) -> Vec<u8> {
    entries
        .iter()
        .flat_map(|entry| entry.bytes.clone())
        .collect()
}

/// LP02: a token's bytes are its own, whatever letters the vocabulary writes them with.
#[test]
fn lp02_texts_and_bytes_are_those_of_the_tokens() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        let fields = json!({"logprobs": true, "top_logprobs": 3});
        let others = [WORD, 0xE6, i32::from(b'a')];
        let reply = ask(&server, &mut client, &fields, &[WORD], &others, 1).await;
        let found = serde_json::to_value(&entries(&reply)[0]).unwrap();
        let whole = json!({"token": "是", "logprob": -2.0, "bytes": [230, 152, 175]});
        let lone = json!({"token": "\u{fffd}", "logprob": -3.0, "bytes": [230]});
        let plain = json!({"token": "a", "logprob": -4.0, "bytes": [97]});
        assert_eq!(
            found,
            json!({
                "token": "是", "logprob": -1.0, "bytes": [230, 152, 175],
                "top_logprobs": [whole, lone, plain],
            })
        );
    });
}

/// LP03: the text of an alternative depends on nothing but itself.
#[test]
fn lp03_alternatives_do_not_know_each_other() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        let fields = json!({"logprobs": true, "top_logprobs": 2});
        let said: Vec<i32> = "“”".bytes().map(i32::from).collect();
        let continues = [0x80, 0x9C, 0x9D, 0xE2, 0xF0, i32::from(b'x'), WORD];
        for mine in continues {
            let mut texts = Vec::new();
            for other in continues {
                for others in [[mine, other], [other, mine]] {
                    let at = usize::from(others[0] != mine);
                    let reply = ask(&server, &mut client, &fields, &said, &others, 1).await;
                    let own = entries(&reply).into_iter();
                    texts.extend(own.map(|entry| entry.top_logprobs[at].clone()));
                }
            }
            let first = (texts[0].token.clone(), texts[0].bytes.clone());
            assert!(!first.0.is_empty());
            assert!(
                texts
                    .iter()
                    .all(|text| (&text.token, &text.bytes) == (&first.0, &first.1)),
                "{mine}: {texts:?}"
            );
        }
    });
}

/// LP09: a chunk carries the entries of the tokens whose text it completes, whatever was held back.
#[test]
fn lp09_entries_come_with_the_text_of_their_tokens() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        let said = tokens("azbzc");
        let fields = json!({"logprobs": true, "stop": ["zz"]});
        let whole = ask(&server, &mut client, &fields, &said, &[], usize::MAX).await;
        let whole_entries = entries(&whole);
        assert_eq!(whole_entries.len(), 5);
        assert_eq!(bytes(&whole_entries), b"azbzc");
        let streamed = json!({
            "logprobs": true, "stop": ["zz"], "stream": true, "stream_options": {"include_usage": true},
        });
        for step in [1, 2, 3, usize::MAX] {
            let reply = ask(&server, &mut client, &streamed, &said, &[], step).await;
            let events = reply.events();
            let (last, chunks) = events.split_last().unwrap();
            assert_eq!(last, "[DONE]");
            let (mut all, mut usage) = (Vec::new(), None);
            for chunk in chunks {
                let chunk: ChatChunk = serde_json::from_str(chunk).unwrap();
                usage = chunk.usage.or(usage);
                for choice in chunk.choices {
                    let text = choice.delta.content.unwrap_or_default();
                    let own = choice.logprobs.unwrap_or_default().content;
                    assert_eq!(bytes(&own), text.as_bytes(), "steps of {step}");
                    all.extend(own);
                }
            }
            assert_eq!(all, whole_entries, "steps of {step}");
            assert_eq!(usage.unwrap().completion_tokens, 5);
        }
    });
}
