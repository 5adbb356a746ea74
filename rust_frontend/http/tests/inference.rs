//! `/inference/v1/generate`, and the routes that make its bodies and read its answers, in one server.

#![allow(clippy::unwrap_used)]

mod support;

use octavo_api::{ChatCompletion, Completion, GenerateResponse};
use serde_json::{Value, json};
use support::client::{Client, Reply};
use support::engine::Call;
use support::model::{END, VOCAB, tokens};
use support::{Server, within};

const GENERATE: &str = "/inference/v1/generate";
const TEXT: &str = "abc END. m\u{f6}re 😀 text";

/// Answers a request with a text, so many bytes a step.
async fn answer(server: &Server, text: &str, bytes: usize) -> Call {
    let call = server.script.call().await;
    for part in tokens(text).chunks(bytes) {
        call.steps.push(part, None);
        tokio::task::yield_now().await;
    }
    call.finish("length");
    call
}

fn events(reply: &Reply) -> Vec<Value> {
    assert_eq!(
        reply.head.headers["content-type"],
        "text/event-stream; charset=utf-8"
    );
    let events = reply.events();
    let (last, chunks) = events.split_last().unwrap();
    assert_eq!(last, "[DONE]");
    chunks
        .iter()
        .map(|chunk| serde_json::from_str(chunk).unwrap())
        .collect()
}

fn ids(events: &[Value]) -> Vec<i32> {
    let choices = events
        .iter()
        .flat_map(|event| event["choices"].as_array().unwrap());
    choices
        .flat_map(|choice| choice["token_ids"].as_array().unwrap())
        .map(|id| i32::try_from(id.as_i64().unwrap()).unwrap())
        .collect()
}

#[test]
fn ids_go_in_and_come_out_streamed_and_not() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        let body = json!({"request_id": "mine-1", "token_ids": [1, 2], "sampling_params": {"max_tokens": 50, "seed": 7}});
        client.post(GENERATE, &body).await;
        let (reply, call) = tokio::join!(client.reply(), answer(&server, TEXT, 100));
        let whole: GenerateResponse = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(
            (call.request.prompt, call.request.sampling.seed),
            (vec![1, 2], 7)
        );
        assert_eq!(call.request.sampling.max_tokens, 50);
        assert_eq!(call.request.sampling.stop_token_ids, [END]);
        assert_eq!(
            (whole.request_id.as_str(), whole.model.as_str()),
            ("mine-1", "test")
        );
        assert_eq!(whole.choices[0].token_ids, tokens(TEXT));
        let usage = whole.usage.unwrap();
        assert_eq!(
            (usage.prompt_tokens, usage.completion_tokens),
            (2, tokens(TEXT).len())
        );

        for bytes in [1, 3, 100] {
            let mut body = body.clone();
            body["stream"] = json!(true);
            body["stream_options"] = json!({"include_usage": true});
            client.post(GENERATE, &body).await;
            let (reply, _) = tokio::join!(client.reply(), answer(&server, TEXT, bytes));
            let events = events(&reply);
            assert_eq!(ids(&events), tokens(TEXT));
            assert!(events.iter().all(|event| event["request_id"] == "mine-1"));
            let (usage, rest) = events.split_last().unwrap();
            assert_eq!(usage["usage"]["completion_tokens"], tokens(TEXT).len());
            let reasons: Vec<_> = rest
                .iter()
                .map(|event| &event["choices"][0]["finish_reason"])
                .collect();
            assert_eq!(reasons.iter().filter(|reason| !reason.is_null()).count(), 1);
            assert_eq!(**reasons.last().unwrap(), "length");
        }
    });
}

#[test]
fn dt10_a_stop_string_ends_the_ids_with_the_token_that_completes_it() {
    // Of the shared bank: the route applies `stop` as /v1/completions does.
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        for (bytes, stream) in [(1, false), (1, true), (100, false), (100, true)] {
            let params = json!({"stop": ["END."]});
            let body = json!({"token_ids": [1, 2], "sampling_params": params, "stream": stream});
            client.post(GENERATE, &body).await;
            let (reply, call) = tokio::join!(client.reply(), async {
                let call = server.script.call().await;
                for part in tokens(TEXT).chunks(bytes) {
                    call.steps.push(part, None);
                }
                call
            });
            call.aborted.await.unwrap();
            let choice = if stream {
                let events = events(&reply);
                assert_eq!(ids(&events), tokens("abc END."));
                events.last().unwrap()["choices"][0].clone()
            } else {
                let whole = reply.json();
                assert_eq!(ids(std::slice::from_ref(&whole)), tokens("abc END."));
                whole["choices"][0].clone()
            };
            assert_eq!(choice["finish_reason"], "stop");
            assert_eq!(choice["stop_reason"], "END.");
        }
    });
}

#[test]
fn a_client_that_leaves_aborts_its_request() {
    within(async {
        let server = Server::start().await;
        for stream in [false, true] {
            let mut client = server.connect().await;
            client
                .post(GENERATE, &json!({"token_ids": [1], "stream": stream}))
                .await;
            let call = server.script.call().await;
            call.say("a");
            drop(client);
            call.aborted.await.unwrap();
        }
    });
}

#[test]
fn what_is_wrong_is_named_and_an_error_in_a_stream_is_its_last_event() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        let cases = [
            (json!({}), "token_ids"),
            (json!({"token_ids": []}), "token_ids"),
            (json!({"token_ids": [-1]}), "token_ids"),
            (json!({"token_ids": [VOCAB]}), "token_ids"),
            (json!({"token_ids": ["a"]}), "token_ids"),
            (
                json!({"token_ids": [1], "sampling_params": []}),
                "sampling_params",
            ),
            (
                json!({"token_ids": [1], "sampling_params": {"temperature": -1}}),
                "sampling_params.temperature",
            ),
            (
                json!({"token_ids": [1], "sampling_params": {"n": 0}}),
                "sampling_params.n",
            ),
            (
                json!({"token_ids": [1], "sampling_params": {"structured_outputs": {"regex": "("}}}),
                "sampling_params.structured_outputs.regex",
            ),
            (
                json!({"token_ids": [1], "sampling_params": {"structured_outputs": {"jsn": {}}}}),
                "sampling_params.structured_outputs.jsn",
            ),
            (
                json!({"token_ids": [1], "stream": true, "sampling_params": {"prompt_logprobs": 1}}),
                "sampling_params.prompt_logprobs",
            ),
            (json!({"token_ids": [1], "features": {}}), "features"),
            (
                json!({"token_ids": [1], "request_id": "two words"}),
                "request_id",
            ),
        ];
        for (body, param) in cases {
            let reply = client.ask_json(GENERATE, &body).await;
            assert_eq!(reply.head.status, 400, "{body}");
            assert_eq!(reply.json()["error"]["param"], param, "{body}");
        }
        let body = json!({"token_ids": [1], "stream": true});
        client.post(GENERATE, &body).await;
        let (reply, ()) = tokio::join!(client.reply(), async {
            let call = server.script.call().await;
            call.say("ab");
            // Two steps: the error comes after the head of the answer.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            call.finish("error");
        });
        let events = events(&reply);
        assert_eq!(events.last().unwrap()["error"]["type"], "server_error");
        assert_eq!(ids(&events[..events.len() - 1]), tokens("ab"));
    });
}

/// What the render routes write of an output's form is the form that the engine gets by the route itself.
#[test]
fn the_form_of_an_output_goes_through_the_rendered_body() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        let schema =
            json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
        for form in [
            json!({"response_format": {"type": "json_object"}}),
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}),
            json!({"structured_outputs": {"json": schema, "disable_any_whitespace": true}}),
            json!({"structured_outputs": {"regex": "a|b"}}),
            json!({"structured_outputs": {"choice": ["x", "::="]}}),
            json!({"structured_outputs": {"grammar": "root ::= \"a\""}}),
        ] {
            let with = |mut body: Value| {
                let fields = form.as_object().unwrap().clone();
                body.as_object_mut().unwrap().extend(fields);
                body
            };
            let chat = with(json!({"messages": [{"role": "user", "content": "hi"}]}));
            for (route, body) in [
                ("/v1/chat/completions", chat),
                ("/v1/completions", with(json!({"prompt": "hi"}))),
            ] {
                client.post(route, &body).await;
                let (_, direct) = tokio::join!(client.reply(), answer(&server, TEXT, 3));
                let rendered = client
                    .ask_json(&format!("{route}/render"), &body)
                    .await
                    .json();
                let rendered = if rendered.is_array() {
                    rendered[0].clone()
                } else {
                    rendered
                };
                client.post(GENERATE, &rendered).await;
                let (reply, by_ids) = tokio::join!(client.reply(), answer(&server, TEXT, 3));
                assert_eq!(reply.head.status, 200, "{rendered}");
                assert!(direct.request.grammar.is_some(), "{body}");
                assert_eq!(direct.request.grammar, by_ids.request.grammar, "{rendered}");
            }
        }
    });
}

/// Renders, generates and derenders.
async fn by_hand(
    server: &Server,
    client: &mut Client,
    route: &str,
    body: &Value,
    named: &str,
) -> Value {
    let rendered = client
        .ask_json(&format!("{route}/render"), body)
        .await
        .json();
    let rendered = if rendered.is_array() {
        rendered[0].clone()
    } else {
        rendered
    };
    client.post(GENERATE, &rendered).await;
    let (generated, _) = tokio::join!(client.reply(), answer(server, TEXT, 3));
    let generated = generated.json();
    let prompt = &rendered["token_ids"];
    let mut request = json!({named: body});
    if named == "chat_request" {
        request["generate_response"] = generated;
        request["prompt_token_ids"] = prompt.clone();
    } else {
        request["generate_responses"] = json!([generated]);
        request["prompt_token_ids"] = json!([prompt]);
    }
    client
        .ask_json(&format!("{route}/derender"), &request)
        .await
        .json()
}

#[test]
fn render_generate_and_derender_together_are_the_route_itself() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        for extra in [
            json!({}),
            json!({"stop": ["re"]}),
            json!({"stop_token_ids": [32], "max_tokens": 40}),
        ] {
            let with = |mut body: Value| {
                body.as_object_mut()
                    .unwrap()
                    .extend(extra.as_object().unwrap().clone());
                body
            };
            let chat =
                with(json!({"model": "alias", "messages": [{"role": "user", "content": "hi"}]}));
            client.post("/v1/chat/completions", &chat).await;
            let (reply, direct) = tokio::join!(client.reply(), answer(&server, TEXT, 3));
            let mut whole: ChatCompletion = serde_json::from_slice(&reply.body).unwrap();
            let parts = by_hand(
                &server,
                &mut client,
                "/v1/chat/completions",
                &chat,
                "chat_request",
            )
            .await;
            let parts: ChatCompletion = serde_json::from_value(parts).unwrap();
            whole.id.clone_from(&parts.id);
            whole.created = parts.created;
            assert_eq!(whole, parts);
            assert_eq!(direct.request.prompt.len(), whole.usage.prompt_tokens);

            let plain = with(json!({"prompt": "hi"}));
            client.post("/v1/completions", &plain).await;
            let (reply, _) = tokio::join!(client.reply(), answer(&server, TEXT, 3));
            let mut whole: Completion = serde_json::from_slice(&reply.body).unwrap();
            let parts = by_hand(
                &server,
                &mut client,
                "/v1/completions",
                &plain,
                "completion_request",
            )
            .await;
            let parts: Completion = serde_json::from_value(parts).unwrap();
            whole.id.clone_from(&parts.id);
            whole.created = parts.created;
            assert_eq!(whole, parts);
        }
    });
}

#[test]
fn an_output_derenders_to_the_same_text_however_it_is_cut() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        for (stop, expected, reason) in [
            (json!([]), TEXT, "length"),
            (json!(["END", "x"]), "abc ", "stop"),
        ] {
            for size in [1, 2, 5, 100] {
                let (mut state, mut text, mut ends) = (Value::Null, String::new(), Vec::new());
                let all = tokens(TEXT);
                let mut parts = all.chunks(size).peekable();
                while let Some(part) = parts.next() {
                    let end = parts.peek().is_none().then_some("length");
                    let choice = json!({"index": 0, "token_ids": part, "finish_reason": end});
                    let messages = json!([{"role": "user", "content": "hi"}]);
                    let body = json!({
                        "stream": true, "stream_state": state,
                        "generate_chunk": {"request_id": "r", "choices": [choice]},
                        "chat_request": {"messages": messages, "stop": stop},
                    });
                    let reply = client
                        .ask_json("/v1/chat/completions/derender", &body)
                        .await
                        .json();
                    state = reply["stream_state"].clone();
                    for choice in reply["chunk"]["choices"].as_array().unwrap() {
                        text.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
                        ends.extend(choice["finish_reason"].as_str().map(str::to_owned));
                    }
                }
                assert_eq!(
                    (text.as_str(), ends),
                    (expected, vec![reason.to_owned()]),
                    "{size}"
                );
            }
        }
    });
}
