//! The routes of vectors over a scripted engine: order, what the engine is asked for, its failures, and bad bodies.

#![allow(clippy::unwrap_used)]

mod support;

use octavo_engine::{GenerateError, News};
use octavo_http::PoolingModel;
use octavo_wire::Floats;
use octavo_wire::frontend::{Finish, Pooled, Pooling};
use serde_json::{Value, json};
use support::engine::Call;
use support::{Server, within};

const ROUTES: [&str; 10] = [
    "/v1/embeddings",
    "/v2/embed",
    "/classify",
    "/pooling",
    "/score",
    "/v1/score",
    "/rerank",
    "/v1/rerank",
    "/v2/rerank",
    "/generative_scoring",
];

/// Fields of some route.
const FIELDS: [&str; 26] = [
    "input",
    "messages",
    "texts",
    "text_1",
    "text_2",
    "queries",
    "documents",
    "query",
    "items",
    "encoding_format",
    "embed_dtype",
    "dimensions",
    "output_dimension",
    "embedding_types",
    "truncate",
    "truncate_prompt_tokens",
    "truncation_side",
    "use_activation",
    "priority",
    "cache_salt",
    "task",
    "top_n",
    "label_token_ids",
    "input_type",
    "max_tokens_per_doc",
    "user",
];

fn embeds() -> PoolingModel {
    let model = json!({
        "convert": "embed", "encoder": true, "tasks": ["token_embed", "embed"], "embedding_size": 4, "matryoshka": true,
    });
    serde_json::from_value(model).unwrap()
}

fn answer(call: &Call, values: &[f32]) {
    call.steps.deliver(News {
        pooled: Some(Pooled {
            width: u32::try_from(values.len()).unwrap(),
            values: Floats(values.to_vec()),
        }),
        finish: Some(Finish::new("stop")),
        ..News::default()
    });
}

#[test]
fn vectors_have_the_order_of_the_texts() {
    within(async {
        let server = Server::pooling(embeds()).await;
        let mut client = server.connect().await;
        let body = json!({"model": "alias", "input": ["ab", "c"], "dimensions": 2, "use_activation": false, "priority": 3,
                          "cache_salt": "s", "other": 1});
        client.post("/v1/embeddings", &body).await;
        let (first, second) = (server.script.call().await, server.script.call().await);
        assert_eq!(
            (first.prompt(), second.prompt()),
            ("ab".to_owned(), "c".to_owned())
        );
        assert!(first.request.name.ends_with("-0") && second.request.name.ends_with("-1"));
        let wanted = Pooling {
            task: "embed".to_owned(),
            activate: Some(false),
            dimensions: 2,
            second: 0,
        };
        assert_eq!(first.request.pooling, Some(wanted));
        assert_eq!(
            (first.request.priority, first.request.sampling.max_tokens),
            (3, 1)
        );
        assert_eq!(first.request.domain.clone().unwrap().salt, "s");
        answer(&second, &[0.5, 1.5]);
        answer(&first, &[0.25, -1.0]);
        let reply = client.reply().await;
        assert_eq!(
            reply.head.headers["x-octavo-warning"],
            "ignored fields: other"
        );
        let body = reply.json();
        assert_eq!(body["model"], "alias");
        assert_eq!(
            body["usage"],
            json!({"prompt_tokens": 3, "total_tokens": 3})
        );
        let item = |index, embedding| json!({"index": index, "object": "embedding", "embedding": embedding});
        assert_eq!(
            body["data"],
            json!([item(0, json!([0.25, -1.0])), item(1, json!([0.5, 1.5]))])
        );
        assert!(server.metric("prompt_tokens_total") > 2.0);
    });
}

#[test]
fn failures_of_the_engine_are_told() {
    within(async {
        let server = Server::pooling(embeds()).await;
        let mut client = server.connect().await;
        client.post("/v1/embeddings", &json!({"input": "a"})).await;
        let call = server.script.call().await;
        call.steps.fail(GenerateError::Rejected {
            code: "too_long".to_owned(),
            message: "no".to_owned(),
            param: Some("input".to_owned()),
        });
        let error = client.reply().await.error(400, "context_length_exceeded");
        assert_eq!(error["param"], "input");
        client.post("/v1/embeddings", &json!({"input": "a"})).await;
        let call = server.script.call().await;
        let finish = Finish {
            message: Some("the engine crashed".to_owned()),
            ..Finish::new("error")
        };
        call.steps.finish(finish);
        let error = client.reply().await.error(500, "internal_error");
        assert_eq!(error["message"], "the engine crashed");
        client
            .post("/v1/embeddings", &json!({"input": ["a", "b"]}))
            .await;
        let (first, second) = (server.script.call().await, server.script.call().await);
        drop(client);
        first.aborted.await.unwrap();
        second.aborted.await.unwrap();
    });
}

#[test]
fn bad_bodies_are_answered_by_400_on_every_route() {
    within(async {
        let server = Server::pooling(embeds()).await;
        let values = [
            json!(null),
            json!(true),
            json!(-1),
            json!(0.5),
            json!(""),
            json!([]),
            json!({}),
            json!([[]]),
            json!([{}]),
            json!([1, "a"]),
            json!([["a"]]),
            json!([[-1]]),
            json!("a".repeat(5000)),
        ];
        let mut client = server.connect().await;
        for path in ROUTES {
            for field in FIELDS {
                for value in &values {
                    // Without a text that could be used nothing reaches the engine.
                    let mut body = json!({"input": [], "texts": [], "text_1": [], "query": [], "model": "test"});
                    body[field] = value.clone();
                    if matches!(field, "input" | "texts" | "text_1" | "query") && usable(value) {
                        continue;
                    }
                    client.post(path, &body).await;
                    let reply = client.reply().await;
                    assert_eq!(reply.head.status, 400, "{path} {field} {value}");
                    assert!(reply.json()["error"]["message"].is_string());
                }
            }
        }
    });
}

/// Whether some route takes it for a text.
fn usable(value: &Value) -> bool {
    value.is_string()
}

#[test]
fn a_model_of_tokens_refuses_and_one_of_vectors_too() {
    within(async {
        let tokens = Server::start().await;
        let mut client = tokens.connect().await;
        for path in ROUTES.iter().filter(|path| **path != "/generative_scoring") {
            client.post(path, &json!({"input": "a"})).await;
            let error = client.reply().await.error(400, "unsupported_parameter");
            assert_eq!(error["param"], "model");
        }
        let vectors = Server::pooling(embeds()).await;
        let mut client = vectors.connect().await;
        for path in [
            "/v1/completions",
            "/inference/v1/generate",
            "/generative_scoring",
        ] {
            let body = json!({"prompt": "a", "token_ids": [1], "query": "a", "items": ["a"], "label_token_ids": [1]});
            client.post(path, &body).await;
            let error = client.reply().await.error(400, "unsupported_parameter");
            assert_eq!(error["param"], "model");
        }
    });
}
