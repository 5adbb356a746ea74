//! Clients that leave or do not read, engines that fail or go away, and the server's own end.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::time::Duration;

use octavo_edge::Settings;
use octavo_engine::GenerateError;
use serde_json::{Value, json};
use support::client::{Client, events};
use support::{Server, eventually, within};

const CHAT: &str = "/v1/chat/completions";

fn hello(stream: bool) -> Value {
    json!({"model": "test", "stream": stream, "messages": [{"role": "user", "content": "hi"}]})
}

fn quick(keep_alive: u64) -> Settings {
    Settings {
        keep_alive: Duration::from_millis(keep_alive),
        ..Settings::default()
    }
}

#[test]
fn a_client_that_leaves_aborts_its_request() {
    within(async {
        let server = Server::start().await;
        for stream in [false, true] {
            let mut client = server.connect().await;
            client.post(CHAT, &hello(stream)).await;
            let mut call = server.script.call().await;
            call.say("begun");
            if stream {
                client.head().await;
                client.text_chunk().await;
            }
            assert!(call.aborted.try_recv().is_err(), "not yet");
            drop(client);
            (&mut call.aborted).await.unwrap();
        }
        eventually("the gauge is back", || {
            server.metric("num_requests_open") == 0.0
        })
        .await;
    });
}

#[test]
fn a_connection_serves_one_request_after_another() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        for stream in [false, true, true, false] {
            client.post(CHAT, &hello(stream)).await;
            let call = server.script.call().await;
            call.say("x");
            call.finish("stop");
            let reply = client.reply().await;
            assert_eq!(reply.head.status, 200);
        }
        client.post(CHAT, &json!({"model": "other"})).await;
        client.reply().await.error(404, "model_not_found");
        assert_eq!(client.get("/health").await.head.status, 200);
    });
}

#[test]
fn a_client_that_does_not_read_holds_up_nobody_and_is_let_go() {
    within(async {
        let settings = Settings {
            write_timeout: Duration::from_millis(300),
            ..Settings::default()
        };
        let server = Server::start_with(settings, Duration::ZERO).await;
        let mut deaf = Client::connect_narrow(server.address).await;
        deaf.post(CHAT, &hello(true)).await;
        let mut call = server.script.call().await;
        // The engine is never held up; more than all socket buffers hold is on its way.
        let text = "x".repeat(256 << 10);
        let mut pushed = 0;
        while call.aborted.try_recv().is_err() {
            if pushed < 48 {
                pushed += 1;
                call.say(&text);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut other = server.connect().await;
        assert_eq!(other.get("/health").await.head.status, 200);
        drop(deaf);
    });
}

#[test]
fn an_error_before_the_first_token_has_a_status() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        for stream in [false, true] {
            client.post(CHAT, &hello(stream)).await;
            let call = server.script.call().await;
            call.steps.fail(GenerateError::Rejected {
                code: "too_long".to_owned(),
                message: "needs 9 blocks, there are 4".to_owned(),
                param: Some("messages".to_owned()),
            });
            let error = client.reply().await.error(400, "context_length_exceeded");
            assert_eq!(error["param"], "messages");
        }
        assert_eq!(server.metric("num_requests_open"), 0.0);
    });
}

#[test]
fn an_error_in_a_stream_is_its_last_event() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        client.post(CHAT, &hello(true)).await;
        let call = server.script.call().await;
        call.say("some");
        client.head().await;
        client.text_chunk().await;
        call.say(" more");
        call.steps.fail(GenerateError::Failed {
            message: "the worker is lost".to_owned(),
        });
        let mut rest = String::new();
        while let Some(chunk) = client.chunk().await {
            rest.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        let events = events(&rest);
        let [text, error, done] = events.as_slice() else {
            panic!("{events:?}")
        };
        assert!(text.contains(" more"));
        let error: Value = serde_json::from_str(error).unwrap();
        assert_eq!(error["error"]["message"], "the worker is lost");
        assert_eq!(error["error"]["type"], "server_error");
        assert_eq!(done, "[DONE]");
        assert_eq!(client.get("/health").await.head.status, 200);
    });
}

#[test]
fn a_stream_that_waits_for_the_engine_says_so() {
    within(async {
        let server = Server::start_with(quick(50), Duration::ZERO).await;
        let mut client = server.connect().await;
        client.post(CHAT, &hello(true)).await;
        let call = server.script.call().await;
        call.steps.set_paused(true);
        client.head().await;
        for _ in 0..2 {
            assert_eq!(
                client.text_chunk().await,
                ": waiting for the engine to come back\n\n"
            );
        }
        call.steps.set_paused(false);
        call.say("on");
        let mut text = client.text_chunk().await;
        while text.starts_with(':') {
            text = client.text_chunk().await;
        }
        assert!(
            text.contains("\"role\":\"assistant\"") && text.contains("\"on\""),
            "{text}"
        );
    });
}

#[test]
fn draining_lets_running_requests_finish() {
    within(async {
        let server = Server::start_with(Settings::default(), Duration::from_secs(20)).await;
        let mut idle = server.connect().await;
        assert_eq!(idle.get("/ready").await.head.status, 200);
        let mut client = server.connect().await;
        client.post(CHAT, &hello(true)).await;
        let call = server.script.call().await;
        call.say("a");
        client.head().await;
        client.text_chunk().await;

        server.shutdown.drain();
        assert!(idle.closed().await, "an idle connection is closed at once");
        call.say("b");
        assert!(client.text_chunk().await.contains("\"b\""));
        call.finish("stop");
        while let Some(chunk) = client.chunk().await {
            assert!(!String::from_utf8(chunk).unwrap().contains("error"));
        }
        assert!(client.closed().await);
        let address = server.address;
        server.ended().await;
        assert!(tokio::net::TcpStream::connect(address).await.is_err());
    });
}

#[test]
fn what_outlasts_the_patience_ends_with_an_error() {
    within(async {
        let server = Server::start_with(Settings::default(), Duration::ZERO).await;
        let mut streamed = server.connect().await;
        streamed.post(CHAT, &hello(true)).await;
        let mut first = server.script.call().await;
        first.say("a");
        streamed.head().await;
        streamed.text_chunk().await;
        let mut whole = server.connect().await;
        whole.post(CHAT, &hello(false)).await;
        let mut second = server.script.call().await;

        server.shutdown.drain();
        let end = events(&streamed.text_chunk().await);
        let error: Value = serde_json::from_str(&end[0]).unwrap();
        assert_eq!(error["error"]["code"], "unavailable");
        assert_eq!(end[1], "[DONE]");
        assert!(streamed.chunk().await.is_none());
        let reply = whole.reply().await;
        reply.error(503, "unavailable");
        assert!(reply.head.headers.contains_key("retry-after"));
        (&mut first.aborted).await.unwrap();
        (&mut second.aborted).await.unwrap();
        server.ended().await;
    });
}

#[test]
fn a_connection_that_never_ends_does_not_hold_up_the_end() {
    within(async {
        let settings = Settings {
            linger: Duration::from_millis(100),
            ..Settings::default()
        };
        let server = Server::start_with(settings, Duration::ZERO).await;
        let mut half = server.connect().await;
        let head = "POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\n\
            Expect: 100-continue\r\nContent-Length: 9\r\n\r\n";
        half.send(head.as_bytes()).await;
        assert_eq!(half.head().await.status, 100);
        server.shutdown.drain();
        server.ended().await;
        assert!(half.closed().await);
    });
}
