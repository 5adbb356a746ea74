//! What clients send that cannot be served: each gets an answer that says why, and the server goes on.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use octavo_edge::Settings;
use octavo_engine::GenerateError;
use serde_json::{Value, json};
use support::{Server, within};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const JSON: &str = "application/json";

fn hello() -> Value {
    json!({"model": "test", "messages": [{"role": "user", "content": "hello"}]})
}

async fn is_well(server: &Server) {
    assert_eq!(server.connect().await.get("/health").await.head.status, 200);
}

#[test]
fn broken_json_is_refused_with_its_place() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        client
            .post_bytes(CHAT, JSON, b"{\"model\": \"test\",\n  oops}")
            .await;
        let error = client.reply().await.error(400, "invalid_json");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("line 2 column 3"), "{message}");
        for body in [
            &b""[..],
            b"[]",
            b"\xff\xfe{}",
            b"{\"a\":\"\\ud800\"}",
            &[b'['; 10_000],
        ] {
            client.post_bytes(CHAT, JSON, body).await;
            client.reply().await.error(400, "invalid_json");
        }
        is_well(&server).await;
    });
}

#[test]
fn content_that_is_not_json_is_refused_by_its_type() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        client
            .post_bytes(CHAT, "text/plain", hello().to_string().as_bytes())
            .await;
        let error = client.reply().await.error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains("text/plain"));
        client
            .send(b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\n{}")
            .await;
        client.reply().await.error(400, "bad_request");
        client
            .post_bytes(CHAT, "Application/JSON; charset=utf-8", b"{}")
            .await;
        client.reply().await.error(400, "missing_field");
    });
}

#[test]
fn fields_are_refused_by_name() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        let cases = [
            (CHAT, "model", json!("other"), 404, "model_not_found"),
            (CHAT, "model", json!(7), 400, "invalid_value"),
            (CHAT, "max_tokens", json!(-1), 400, "invalid_value"),
            (CHAT, "temperature", json!("hot"), 400, "invalid_value"),
            (
                CHAT,
                "tools",
                json!([{"type": "function", "function": {"name": "f"}}]),
                400,
                "unsupported_parameter",
            ),
            (COMPLETIONS, "prompt", json!({"a": 1}), 400, "invalid_value"),
        ];
        for (path, field, value, status, code) in cases {
            let mut body = hello();
            body["prompt"] = json!("hello");
            body[field] = value;
            let error = client.ask_json(path, &body).await.error(status, code);
            assert_eq!(error["param"], field, "{error}");
        }
    });
}

#[test]
fn a_prompt_beyond_the_context_is_refused_with_both_lengths() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        let body = json!({"model": "test", "prompt": "x".repeat(5000)});
        let error = client
            .ask_json(COMPLETIONS, &body)
            .await
            .error(400, "context_length_exceeded");
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains("5000") && message.contains("4096"),
            "{message}"
        );
    });
}

#[test]
fn bodies_beyond_the_limit_are_refused_however_they_come() {
    within(async {
        let settings = Settings {
            max_body_bytes: 100_000,
            ..Settings::default()
        };
        let server = Server::start_with(settings, Duration::ZERO).await;
        let body = vec![b'x'; 150_000];

        let mut client = server.connect().await;
        client.post_bytes(CHAT, JSON, &body).await;
        let error = client.reply().await.error(413, "body_too_large");
        assert!(error["message"].as_str().unwrap().contains("100000"));

        let mut client = server.connect().await;
        let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n\
            Transfer-Encoding: chunked\r\n\r\n";
        client.send(head.as_bytes()).await;
        client
            .send(
                &[
                    format!("{:x}\r\n", body.len()).as_bytes(),
                    &body,
                    b"\r\n0\r\n\r\n",
                ]
                .concat(),
            )
            .await;
        client.reply().await.error(413, "body_too_large");

        let mut client = server.connect().await;
        let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n\
            Expect: 100-continue\r\nContent-Length: 9999999999\r\n\r\n";
        client.send(head.as_bytes()).await;
        client.reply().await.error(413, "body_too_large");
        is_well(&server).await;
    });
}

#[test]
fn routes_that_read_little_say_so() {
    within(async {
        let server = Server::start().await;
        let body = vec![b' '; (1 << 20) + 1];
        let mut client = server.connect().await;
        client.post_bytes("/abort_requests", JSON, &body).await;
        let error = client.reply().await.error(413, "body_too_large");
        assert!(error["message"].as_str().unwrap().contains("1048576"));
        let mut client = server.connect().await;
        client.post_bytes(CHAT, JSON, &body).await;
        client.reply().await.error(400, "invalid_json");
        let small = Settings {
            max_body_bytes: 1000,
            ..Settings::default()
        };
        let server = Server::start_with(small, Duration::ZERO).await;
        let mut client = server.connect().await;
        client.post_bytes("/abort_requests", JSON, &body).await;
        let error = client.reply().await.error(413, "body_too_large");
        assert!(error["message"].as_str().unwrap().contains("1000 bytes"));
    });
}

#[test]
fn bodies_that_together_take_too_much_memory_are_put_off() {
    within(async {
        let settings = Settings {
            max_pending_bytes: 64 << 10,
            ..Settings::default()
        };
        let server = Server::start_with(settings, Duration::ZERO).await;
        let mut client = server.connect().await;
        client.post_bytes(CHAT, JSON, &[b' '; 100_000]).await;
        let reply = client.reply().await;
        reply.error(429, "overloaded");
        assert!(reply.head.headers.contains_key("retry-after"));
        let mut client = server.connect().await;
        client.post_bytes(CHAT, JSON, &[b' '; 60_000]).await;
        client.reply().await.error(400, "invalid_json");
    });
}

#[test]
fn clients_that_stop_sending_are_let_go() {
    within(async {
        let settings = Settings {
            head_timeout: Duration::from_secs(1),
            body_timeout: Duration::from_millis(300),
            ..Settings::default()
        };
        let server = Server::start_with(settings, Duration::ZERO).await;
        let mut half_head = server.connect().await;
        half_head.send(b"POST /v1/chat/comp").await;
        assert!(half_head.closed().await);

        let mut half_body = server.connect().await;
        half_body
            .send(b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{")
            .await;
        half_body.reply().await.error(400, "request_timeout");
        is_well(&server).await;
    });
}

#[test]
fn what_is_not_http_is_refused_and_forgotten() {
    within(async {
        let server = Server::start().await;
        let heads: [&[u8]; 4] = [
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello, TLS\r\n\r\n",
            b"GET\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        ];
        for bytes in heads {
            let mut client = server.connect().await;
            client.send(bytes).await;
            assert_eq!(client.head().await.status, 400, "{bytes:?}");
        }
        let mut client = server.connect().await;
        client
            .try_send(&[b"GET / HTTP/1.1\r\nX: ".as_slice(), &[b'a'; 200_000]].concat())
            .await;
        is_well(&server).await;
    });
}

#[test]
fn a_panic_in_a_handler_fails_that_request_alone() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        server.script.panics.store(true, Ordering::SeqCst);
        let reply = client.ask_json(CHAT, &hello()).await;
        reply.error(500, "internal_error");
        assert!(reply.head.headers.contains_key("x-request-id"));
        server.script.panics.store(false, Ordering::SeqCst);
        client.post(CHAT, &hello()).await;
        let call = server.script.call().await;
        call.say("fine");
        call.finish("stop");
        assert_eq!(client.reply().await.head.status, 200);
    });
}

#[test]
fn gr01_refusals_of_the_engine_have_their_own_status() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        let full = GenerateError::Overloaded {
            message: "1024 requests are open".to_owned(),
            retry_after_s: 3,
        };
        *server.script.refusal.lock().unwrap() = Some(full);
        let reply = client.ask_json(CHAT, &hello()).await;
        reply.error(429, "overloaded");
        assert_eq!(reply.head.headers["retry-after"], "3");
        let away = GenerateError::Unavailable {
            message: "no engine".to_owned(),
            retry_after_s: 7,
        };
        *server.script.refusal.lock().unwrap() = Some(away);
        let reply = client.ask_json(CHAT, &hello()).await;
        reply.error(503, "unavailable");
        assert_eq!(reply.head.headers["retry-after"], "7");
        server.script.known.store(false, Ordering::SeqCst);
        client
            .ask_json(CHAT, &hello())
            .await
            .error(503, "unavailable");
        assert_eq!(server.metric("num_requests_open"), 0.0);
    });
}
