//! The routes that say how the server is, and paths that are none.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::atomic::Ordering;

use serde_json::json;
use support::{Server, within};

#[test]
fn health_follows_the_engine() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        server.script.ready.store(false, Ordering::SeqCst);
        assert_eq!(client.get("/health").await.head.status, 200);
        server.script.alive.store(false, Ordering::SeqCst);
        let reply = client.get("/health").await;
        reply.error(503, "unavailable");
        assert!(reply.head.headers.contains_key("retry-after"));
    });
}

#[test]
fn readiness_needs_an_engine_and_a_server_that_takes_requests() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        assert_eq!(client.get("/ready").await.head.status, 200);
        server.script.ready.store(false, Ordering::SeqCst);
        client.get("/ready").await.error(503, "unavailable");
    });
}

#[test]
fn models_are_the_served_names() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        let models = client.get("/v1/models").await.json();
        assert_eq!(models["object"], "list");
        assert_eq!(models["data"][0]["id"], "test");
        assert_eq!(models["data"][1]["id"], "alias");
        assert_eq!(models["data"][0]["max_model_len"], 4096);
        server.script.known.store(false, Ordering::SeqCst);
        let models = client.get("/v1/models").await.json();
        assert_eq!(models["data"][0]["max_model_len"], json!(null));
    });
}

#[test]
fn version_and_metrics_answer() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        let version = client.get("/version").await.json();
        assert_eq!(version, json!({"version": env!("CARGO_PKG_VERSION")}));
        client.get("/nowhere").await;
        let metrics = client.get("/metrics").await;
        assert!(metrics.head.headers["content-type"].starts_with("text/plain; version=0.0.4"));
        let text = metrics.text();
        assert!(
            text.contains("octavo:num_requests_running{model_name=\"test\"} 0\n"),
            "{text}"
        );
        assert!(
            text.contains("handler=\"/version\",method=\"GET\",status=\"200\"} 1\n"),
            "{text}"
        );
        assert!(
            text.contains("handler=\"unknown\",method=\"GET\",status=\"404\"} 1\n"),
            "{text}"
        );
    });
}

#[test]
fn what_is_no_route_is_told_in_the_errors_of_the_api() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        let error = client.get("/v1/nothing?x=1").await.error(404, "not_found");
        assert!(error["message"].as_str().unwrap().contains("/v1/nothing"));
        let reply = client.get("/v1/chat/completions").await;
        reply.error(405, "method_not_allowed");
        assert_eq!(reply.head.headers["allow"], "POST");
        let reply = client.ask("BREW", "/health").await;
        reply.error(405, "method_not_allowed");
        assert_eq!(client.get("/health").await.head.status, 200);
    });
}

#[test]
fn a_request_id_comes_back_and_names_the_answer() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        client
            .send(b"GET /health HTTP/1.1\r\nHost: t\r\nX-Request-Id: mine-1\r\n\r\n")
            .await;
        assert_eq!(client.reply().await.head.headers["x-request-id"], "mine-1");
        client
            .send(b"GET /health HTTP/1.1\r\nHost: t\r\nX-Request-Id: not sane\r\n\r\n")
            .await;
        let drawn = client.reply().await.head.headers["x-request-id"].clone();
        assert_eq!(drawn.len(), 32);
        assert_ne!(
            client.get("/health").await.head.headers["x-request-id"],
            drawn
        );
    });
}
