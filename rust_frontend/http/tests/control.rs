//! Routes that change the engine's state: what reaches the engine, and how its refusals read.

#![allow(clippy::unwrap_used)]

mod support;

use octavo_engine::GenerateError;
use serde_json::{Value, json};
use support::{Server, within};

/// What the engine was asked last.
fn asked(server: &Server) -> (String, Value) {
    let (op, args) = server.script.controls.lock().unwrap().pop().unwrap();
    (op, json!(args))
}

#[test]
fn queries_become_arguments() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        let cases = [
            ("/pause", "pause", json!({}), json!({"status": "paused"})),
            (
                "/pause?mode=keep&clear_cache=False",
                "pause",
                json!({"mode": "keep", "clear_cache": "false"}),
                json!({"status": "paused"}),
            ),
            ("/resume", "resume", json!({}), json!({"status": "resumed"})),
            (
                "/sleep?level=2&mode=wait",
                "sleep",
                json!({"level": "2", "mode": "wait"}),
                json!({"status": "sleeping"}),
            ),
            (
                "/wake_up?tags=weights&tags=kv_cache",
                "wake_up",
                json!({"tags": "weights,kv_cache"}),
                json!({"status": "awake"}),
            ),
            (
                "/reset_prefix_cache?reset_running_requests=true",
                "reset_prefix_cache",
                json!({"reset_running_requests": "true"}),
                json!({"success": true}),
            ),
        ];
        for (path, op, args, answer) in cases {
            let reply = client.ask("POST", path).await;
            assert_eq!((reply.head.status, reply.json()), (200, answer), "{path}");
            assert_eq!(asked(&server), (op.to_owned(), args), "{path}");
        }
        let reply = client.ask("POST", "/pause?mod=keep").await;
        assert_eq!(reply.error(400, "invalid_value")["param"], "mod");
        for path in ["/is_paused", "/is_sleeping", "/weight_info"] {
            assert_eq!(client.get(path).await.head.status, 200, "{path}");
            assert_eq!(client.ask("POST", path).await.head.status, 405, "{path}");
        }
    });
}

#[test]
fn bodies_become_arguments() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        let info = json!({"update_info": {"names": ["a"], "shapes": [[1]]}});
        client.ask_json("/update_weights", &info).await;
        let text = json!({"update_info": info["update_info"].to_string()});
        assert_eq!(asked(&server), ("update_weights".to_owned(), text));
        let ids = json!({"request_ids": ["x"]});
        let reply = client.ask_json("/abort_requests", &ids).await;
        assert_eq!(reply.json(), json!({"status": "aborted", "aborted": 0}));
        assert_eq!(asked(&server).1, json!({"request_ids": "[\"x\"]"}));
        client.ask("POST", "/abort_requests").await;
        assert_eq!(asked(&server).1, json!({}));
        let version = json!({"weight_version": null});
        client.ask_json("/finish_weight_update", &version).await;
        assert_eq!(asked(&server).1, json!({}));
        let wrong = [
            ("/update_weights", json!({}), "missing_field", "update_info"),
            (
                "/update_weights",
                json!({"update_info": 3}),
                "invalid_value",
                "update_info",
            ),
            (
                "/abort_requests",
                json!({"request_ids": "x"}),
                "invalid_value",
                "request_ids",
            ),
            (
                "/update_weight_version",
                json!({"new_version": 7}),
                "invalid_value",
                "new_version",
            ),
            (
                "/finish_weight_update",
                json!({"version": "7"}),
                "invalid_value",
                "version",
            ),
        ];
        for (path, body, code, param) in wrong {
            let error = client.ask_json(path, &body).await.error(400, code);
            assert_eq!(error["param"], param, "{path} {body}");
        }
    });
}

#[test]
fn refusals_have_their_status() {
    within(async {
        let server = Server::start().await;
        let mut client = server.connect().await;
        let message = || "no".to_owned();
        let cases = [
            (
                GenerateError::Conflict { message: message() },
                409,
                "conflict",
            ),
            (
                GenerateError::Unsupported { message: message() },
                501,
                "not_implemented",
            ),
            (
                GenerateError::Failed { message: message() },
                500,
                "internal_error",
            ),
            (
                GenerateError::Unavailable {
                    message: message(),
                    retry_after_s: 7,
                },
                503,
                "unavailable",
            ),
            (
                GenerateError::Rejected {
                    code: "invalid".to_owned(),
                    message: message(),
                    param: Some("mode".to_owned()),
                },
                400,
                "invalid_value",
            ),
        ];
        for (refusal, status, code) in cases {
            *server.script.refusal.lock().unwrap() = Some(refusal);
            client.ask("POST", "/pause").await.error(status, code);
        }
    });
}
