//! Errors of Anthropic's API, and the header that names what has no effect.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use octavo_api::MessageEvent;
use octavo_edge::Keys;
use octavo_engine::GenerateError;
use serde_json::{Value, json};
use support::client::Reply;
use support::message::{PATH, ask, body, events};
use support::model::tokens;
use support::{Server, within};

/// What is wrong, and what the message names.
const WRONG: [(&str, &str); 22] = [
    (r#"{"max_tokens": null}"#, "'max_tokens'"),
    (r#"{"max_tokens": 0}"#, "'max_tokens'"),
    (r#"{"messages": []}"#, "'messages'"),
    (
        r#"{"messages": [{"role": "tool", "content": "x"}]}"#,
        "messages.0.role",
    ),
    (r#"{"messages": [{"role": "user"}]}"#, "messages.0.content"),
    (
        r#"{"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}"#,
        "\"image\"",
    ),
    (
        r#"{"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image"}]}]}]}"#,
        "\"image\"",
    ),
    (
        r#"{"messages": [{"role": "user", "content": [{"type": "tool_use"}]}]}"#,
        "messages.0.content.0",
    ),
    (
        r#"{"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}]}"#,
        "messages.0",
    ),
    (r#"{"system": 3}"#, "'system'"),
    (
        r#"{"stop_sequences": ["a", "b", "c", "d", "e"]}"#,
        "'stop_sequences'",
    ),
    (r#"{"temperature": "hot"}"#, "'temperature'"),
    (
        r#"{"tools": [{"type": "web_search_20250305", "name": "web_search"}]}"#,
        "web_search_20250305",
    ),
    (r#"{"tools": [{"name": "f"}]}"#, "tools.0.input_schema"),
    (r#"{"tool_choice": {"type": "any"}}"#, "'tool_choice'"),
    (
        r#"{"tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "tool", "name": "g"}}"#,
        "'tool_choice.name'",
    ),
    (
        r#"{"thinking": {"type": "enabled"}}"#,
        "'thinking.budget_tokens'",
    ),
    (
        r#"{"thinking": {"type": "enabled", "budget_tokens": 50}}"#,
        "'thinking.budget_tokens'",
    ),
    (
        r#"{"output_config": {"effort": "huge"}}"#,
        "output_config.effort",
    ),
    (
        r#"{"output_config": {"format": {"type": "json_schema", "schema": {"type": "nonsense"}}}}"#,
        "output_config.format.schema",
    ),
    (r#"{"mcp_servers": [{"url": "x"}]}"#, "'mcp_servers'"),
    (r#"{"metadata": {"user_id": 3}}"#, "'metadata.user_id'"),
];

/// The type of an error in Anthropic's shape.
fn refused(reply: &Reply, status: u16) -> (String, String) {
    let body = reply.json();
    assert_eq!(reply.head.status, status, "{body}");
    assert_eq!(body["type"], "error");
    assert_eq!(body["request_id"], reply.head.headers["request-id"]);
    let error = body["error"].as_object().unwrap();
    assert_eq!(error.keys().collect::<Vec<_>>(), ["type", "message"]);
    let of = |name: &str| error[name].as_str().unwrap().to_owned();
    (of("type"), of("message"))
}

#[test]
fn errors_have_anthropics_shape_and_name_the_field() {
    within(async {
        let server = Server::parsing(Some("hermes"), None).await;
        let mut client = server.connect().await;
        for (fields, named) in WRONG {
            let fields: Value = serde_json::from_str(fields).unwrap();
            let reply = client.ask_json(PATH, &body(&fields)).await;
            let (kind, message) = refused(&reply, 400);
            assert_eq!(kind, "invalid_request_error");
            assert!(message.contains(named), "{fields}: {message}");
        }
        let reply = client
            .ask_json(PATH, &body(&json!({"model": "nope"})))
            .await;
        assert_eq!(refused(&reply, 404).0, "not_found_error");
        client.post_bytes(PATH, "application/json", b"{").await;
        assert_eq!(
            refused(&client.reply().await, 400).0,
            "invalid_request_error"
        );
        assert_eq!(
            refused(&client.get(PATH).await, 405).0,
            "invalid_request_error"
        );
        assert_eq!(
            refused(&client.get("/v1/messages/batches").await, 404).0,
            "not_found_error"
        );
        client
            .get("/v1/messages_of_others")
            .await
            .error(404, "not_found");
        *server.script.refusal.lock().unwrap() = Some(GenerateError::Overloaded {
            message: "full".to_owned(),
            retry_after_s: 1,
        });
        let reply = client.ask_json(PATH, &body(&json!({}))).await;
        assert_eq!(refused(&reply, 429).0, "rate_limit_error");
        assert_eq!(reply.head.headers["retry-after"], "1");
    });
}

#[test]
fn a_key_may_come_in_either_header() {
    within(async {
        let keys = Keys::new(&["secret-key".to_owned()], None).unwrap();
        let server = Server::locked(keys).await;
        let mut client = server.connect().await;
        let reply = client.ask_json(PATH, &body(&json!({}))).await;
        assert_eq!(refused(&reply, 401).0, "authentication_error");
        for header in ["x-api-key: secret-key", "Authorization: Bearer secret-key"] {
            let text = body(&json!({"max_tokens": 0})).to_string();
            let head = format!(
                "POST {PATH} HTTP/1.1\r\nHost: test\r\n{header}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                text.len()
            );
            client
                .send(&[head.as_bytes(), text.as_bytes()].concat())
                .await;
            refused(&client.reply().await, 400);
        }
    });
}

#[test]
fn a_stream_that_fails_ends_with_one_error_event() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        client.post(PATH, &body(&json!({"stream": true}))).await;
        let call = server.script.call().await;
        call.say("begun");
        let play = async {
            call.steps.fail(GenerateError::Failed {
                message: "broken".to_owned(),
            });
        };
        let (reply, ()) = tokio::join!(client.reply(), play);
        let events = events(&reply);
        let Some(MessageEvent::Error { error, request_id }) = events.last() else {
            panic!("{events:?}");
        };
        assert_eq!(
            (error.kind.as_str(), error.message.as_str()),
            ("api_error", "broken")
        );
        assert_eq!(request_id.as_ref(), reply.head.headers.get("x-request-id"));
        assert_eq!(
            events
                .iter()
                .filter(|event| event.name() == "error")
                .count(),
            1
        );
        assert!(events.iter().all(|event| event.name() != "message_stop"));
    });
}

#[test]
fn fields_without_effect_are_named_in_a_header() {
    within(async {
        let server = Server::start().await;
        for stream in [false, true] {
            let fields =
                json!({"speed": "fast", "stream": stream, "service_tier": "auto", "betas": null});
            let (reply, _) = ask(&server, &fields, &tokens("x"), 1, "stop").await;
            assert_eq!(
                reply.head.headers["x-octavo-warning"],
                "ignored fields: speed"
            );
            let (reply, _) =
                ask(&server, &json!({"stream": stream}), &tokens("x"), 1, "stop").await;
            assert!(!reply.head.headers.contains_key("x-octavo-warning"));
        }
    });
}

#[test]
fn openais_routes_name_them_too() {
    within(async {
        let server = Server::start().await;
        let messages = json!([{"role": "user", "content": "hi"}]);
        for (path, prompt) in [
            ("/v1/chat/completions", ("messages", messages)),
            ("/v1/completions", ("prompt", json!("hi"))),
        ] {
            for stream in [false, true] {
                let mut body = json!({
                    "model": "test", "stream": stream, "temperature": 0.5, "best_of": 1, "suffix": null, "mood": "good",
                });
                body[prompt.0] = prompt.1.clone();
                let mut client = server.connect().await;
                client.post(path, &body).await;
                let call = server.script.call().await;
                call.say("x");
                call.finish("stop");
                let reply = client.reply().await;
                assert_eq!(reply.head.status, 200, "{}", reply.text());
                assert_eq!(
                    reply.head.headers["x-octavo-warning"],
                    "ignored fields: mood"
                );
            }
        }
    });
}
