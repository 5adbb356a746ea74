//! Beam search over HTTP: what is asked of the engine, what comes back, what is refused.

#![allow(clippy::unwrap_used)]

mod support;

use octavo_engine::News;
use octavo_wire::frontend::{Finish, Logprobs};
use octavo_wire::{Floats, Tokens};
use serde_json::{Value, json};
use support::answer::{CHAT, chat};
use support::engine::{Call, Script};
use support::model::END;
use support::{Server, eventually, within};

const COMPLETION: &str = "/v1/completions";

/// Answers one step: behind "a" comes "b" or "c", behind anything else the end, "a" or "b".
fn answer(call: &Call) {
    let wanted = call.request.sampling.extras.as_ref().unwrap().logprobs;
    let best: &[(i32, f32)] = if call.request.prompt.last() == Some(&97) {
        &[(98, -0.25), (99, -1.5), (97, -4.0)]
    } else {
        &[(97, -0.5), (END, -1.0), (98, -3.0)]
    };
    let best = &best[..best.len().min(usize::try_from(wanted.unwrap()).unwrap())];
    let row = || best.iter().take(1).chain(best);
    let logprobs = Logprobs {
        width: u32::try_from(1 + best.len()).unwrap(),
        ids: Tokens(row().map(|entry| entry.0).collect()),
        values: Floats(row().map(|entry| entry.1).collect()),
        ranks: Tokens(vec![1]),
    };
    call.steps.deliver(News {
        tokens: &[best[0].0],
        cached_tokens: Some(0),
        logprobs: Some(logprobs),
        finish: Some(Finish::new("length")),
        ..News::default()
    });
}

/// Answers steps for ever; says how many requests came, and whether all were for one token.
async fn play(script: &Script, count: &mut usize) {
    loop {
        let call = script.call().await;
        assert_eq!(call.request.sampling.max_tokens, 1);
        *count += 1;
        answer(&call);
    }
}

async fn asked(server: &Server, path: &str, body: &Value) -> (Value, usize) {
    let mut client = server.connect().await;
    client.post(path, body).await;
    let mut count = 0;
    let reply = tokio::select! {
        reply = client.reply() => reply,
        () = play(&server.script, &mut count) => unreachable!(),
    };
    assert_eq!(reply.head.status, 200, "{}", reply.text());
    (reply.json(), count)
}

#[test]
fn the_best_beams_come_first_with_their_log_probabilities() {
    within(async {
        let server = Server::start().await;
        let body = json!({
            "model": "test", "prompt": "x", "use_beam_search": true, "n": 2, "max_tokens": 2, "length_penalty": 0,
            "logprobs": 1, "return_token_ids": true,
        });
        let (answer, count) = asked(&server, COMPLETION, &body).await;
        // The sums: "ab" -0.75, the end alone -1, "ac" -2.
        let choices = answer["choices"].as_array().unwrap();
        assert_eq!(choices.len(), 2);
        assert_eq!(choices[0]["text"], "ab");
        assert_eq!(choices[0]["finish_reason"], "length");
        assert_eq!(
            choices[0]["logprobs"]["token_logprobs"],
            json!([-0.5, -0.25])
        );
        assert_eq!(choices[1]["token_ids"], json!([END]));
        assert_eq!(choices[1]["finish_reason"], "stop");
        assert_eq!(choices[1]["logprobs"]["top_logprobs"][0]["a"], -0.5);
        assert_eq!(answer["usage"]["prompt_tokens"], 1);
        assert_eq!(answer["usage"]["completion_tokens"], 3);
        assert_eq!(count, 3); // the prompt; "a" and "b"
    });
}

#[test]
fn a_chat_and_a_stream_get_the_same() {
    within(async {
        let server = Server::start().await;
        let fields = json!({"use_beam_search": true, "n": 2, "max_tokens": 2, "length_penalty": 0});
        let (answer, _) = asked(&server, CHAT, &chat(&fields)).await;
        assert_eq!(answer["choices"][0]["message"]["content"], "ab");
        let mut client = server.connect().await;
        let mut streamed = chat(&fields);
        streamed["stream"] = json!(true);
        client.post(CHAT, &streamed).await;
        let mut count = 0;
        let reply = tokio::select! {
            reply = client.reply() => reply,
            () = play(&server.script, &mut count) => unreachable!(),
        };
        let mut texts = [String::new(), String::new()];
        let events = reply.events();
        for event in events.iter().filter(|event| *event != "[DONE]") {
            let event: Value = serde_json::from_str(event).unwrap();
            let choice = &event["choices"][0];
            let index = usize::try_from(choice["index"].as_u64().unwrap()).unwrap();
            texts[index].push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        }
        assert_eq!(texts, ["ab", ""]);
    });
}

#[test]
fn a_client_that_leaves_ends_the_search() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        let body = chat(&json!({"use_beam_search": true, "n": 3}));
        client.post(CHAT, &body).await;
        let mut call = server.script.call().await;
        drop(client);
        (&mut call.aborted).await.unwrap();
        eventually("the request is over", || server.finished("abort") > 2.5).await;
    });
}

#[test]
fn a_step_that_fails_fails_the_request() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        let body = chat(&json!({"use_beam_search": true, "n": 2}));
        client.post(CHAT, &body).await;
        let play = async {
            let call = server.script.call().await;
            call.steps.finish(Finish {
                message: Some("it broke".to_owned()),
                ..Finish::new("error")
            });
        };
        let (reply, ()) = tokio::join!(client.reply(), play);
        let error = reply.error(500, "internal_error");
        assert!(
            error["message"].as_str().unwrap().contains("it broke"),
            "{error}"
        );
    });
}

#[test]
fn what_cannot_go_with_it_is_refused_by_name() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        let schema = json!({"type": "json_object"});
        for (fields, param) in [
            (json!({"use_beam_search": "yes"}), "use_beam_search"),
            (json!({"length_penalty": 2}), "length_penalty"),
            (
                json!({"use_beam_search": true, "length_penalty": 11}),
                "length_penalty",
            ),
            (
                json!({"use_beam_search": true, "length_penalty": "x"}),
                "length_penalty",
            ),
            (
                json!({"use_beam_search": true, "min_tokens": 1}),
                "min_tokens",
            ),
            (
                json!({"use_beam_search": true, "logit_bias": {"97": 1}}),
                "logit_bias",
            ),
            (
                json!({"use_beam_search": true, "presence_penalty": 1}),
                "presence_penalty",
            ),
            (
                json!({"use_beam_search": true, "response_format": schema}),
                "use_beam_search",
            ),
        ] {
            let reply = client.ask_json(CHAT, &chat(&fields)).await;
            let error = reply.error(400, "invalid_value");
            assert_eq!(error["param"], param, "{error}");
        }
        let neutral = json!({"use_beam_search": false, "length_penalty": 1.0, "max_tokens": 1});
        client.post(CHAT, &chat(&neutral)).await;
        let play = async { server.script.call().await.finish("stop") };
        let (reply, ()) = tokio::join!(client.reply(), play);
        assert_eq!(reply.head.status, 200);
        assert!(!reply.head.headers.contains_key("x-octavo-warning"));
    });
}
