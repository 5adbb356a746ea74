//! Case SE05: requests that ask for far too much are refused by name, and cost the server nothing that lasts.
//!
//! The other cases of security: SE01 and SE02 in media/tests/canary.rs, SE04 in tests/e2e/test_stopping.py. Smuggling, which has
//! no id, is in limits.rs.

#![allow(clippy::unwrap_used)]

mod support;

use serde_json::{Map, Value, json};
use support::{Server, within};

const COMPLETIONS: &str = "/v1/completions";

/// Bytes of memory that this process had at most.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

#[test]
fn se05_each_is_refused_by_its_field_and_memory_stays() {
    let biases: Map<String, Value> = (0..1_000_000)
        .map(|id| (id.to_string(), json!(1)))
        .collect();
    let stops: Vec<String> = (0..10_000).map(|number| format!("s{number}")).collect();
    let cases = [
        ("prompt_logprobs", json!(-1)),
        ("logprobs", json!(1_000_000)),
        ("n", json!(100_000)),
        ("best_of", json!(100_000)),
        ("stop", json!(stops)),
        ("prompt", json!(vec!["a"; 100_000])),
        ("logit_bias", Value::Object(biases)),
    ];
    let bodies = cases.map(|(field, value)| {
        let mut body = json!({"model": "test", "prompt": "hi"});
        body[field] = value;
        (field, body.to_string())
    });
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        let before = peak();
        for (field, body) in bodies {
            client
                .post_bytes(COMPLETIONS, "application/json", body.as_bytes())
                .await;
            let reply = client.reply().await;
            assert_eq!(reply.head.status, 400, "{field}: {}", reply.text());
            let error = &reply.json()["error"];
            let named = error["param"].as_str().unwrap();
            assert!(
                named == field || named.starts_with(&format!("{field}.")),
                "{error}"
            );
        }
        // Reading the largest of them, of 13 MB, is all that was done.
        let grown = peak() - before;
        assert!(grown < 512 << 20, "{grown} bytes");
        assert_eq!(server.connect().await.get("/health").await.head.status, 200);
    });
}
