//! Sampling fields that few requests use: what is allowed, and how a wrong value is named.
#![allow(clippy::unwrap_used)]

use octavo_api::{ApiError, Body, ChatRequest, CompletionRequest};
use serde_json::{Value, json};

fn body(base: Value, fields: Value) -> Body {
    let mut body = base;
    body.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    Body::parse(&serde_json::to_vec(&body).unwrap()).unwrap()
}

fn chat(fields: Value) -> Result<ChatRequest, ApiError> {
    let base = json!({"messages": [{"role": "user", "content": "hi"}]});
    ChatRequest::from_body(body(base, fields))
}

fn completion(fields: Value) -> Result<CompletionRequest, ApiError> {
    CompletionRequest::from_body(body(json!({"prompt": "hi"}), fields))
}

fn refused(extra: &Value, param: &str, said: &str) {
    for error in [
        chat(extra.clone()).unwrap_err(),
        completion(extra.clone()).unwrap_err(),
    ] {
        assert_eq!(
            (error.status(), error.param.as_deref()),
            (400, Some(param)),
            "{extra}"
        );
        assert!(error.message.contains(said), "{extra}: {error}");
    }
}

#[test]
fn numbers_out_of_range_are_named() {
    for (extra, param, said) in [
        (json!({"min_p": 2}), "min_p", "from 0 to 1; got 2"),
        (json!({"n": 0}), "n", "from 1 to 128"),
        (json!({"n": 129}), "n", "got 129"),
        (json!({"best_of": 2}), "best_of", "not supported"),
        (
            json!({"repetition_penalty": 0}),
            "repetition_penalty",
            "got 0",
        ),
        (json!({"presence_penalty": 3}), "presence_penalty", "got 3"),
        (
            json!({"frequency_penalty": -2.5}),
            "frequency_penalty",
            "got -2.5",
        ),
        (json!({"logit_bias": {"7": 101}}), "logit_bias", "got 101"),
        (json!({"logit_bias": {"-1": 1}}), "logit_bias", "\"-1\""),
        (json!({"logit_bias": {"x": 1}}), "logit_bias", "\"x\""),
        (json!({"logit_bias": {"7": "1"}}), "logit_bias", "token 7"),
    ] {
        refused(&extra, param, said);
    }
}

#[test]
fn lists_and_rules_are_named() {
    for (extra, param, said) in [
        (
            json!({"bad_words": [""]}),
            "bad_words",
            "none of them empty",
        ),
        (
            json!({"allowed_token_ids": []}),
            "allowed_token_ids",
            "at least one",
        ),
        (json!({"min_tokens": -1}), "min_tokens", "got -1"),
        (json!({"stream_interval": 0}), "stream_interval", "got 0"),
        (
            json!({"thinking_token_budget": -2}),
            "thinking_token_budget",
            "got -2",
        ),
        (
            json!({"thinking_start_token_ids": [1]}),
            "thinking_end_token_ids",
            "both markers or none",
        ),
        (
            json!({"repetition_detection": {"max_pattern_size": 2, "min_pattern_size": 3}}),
            "repetition_detection.min_pattern_size",
            "got 3",
        ),
        (
            json!({"repetition_detection": {"max_pattern_size": 2, "min_count": 1}}),
            "repetition_detection.min_count",
            "at least 2",
        ),
        (
            json!({"prompt_logprobs": 1, "stream": true}),
            "prompt_logprobs",
            "not available in a stream",
        ),
        (json!({"prompt_logprobs": -2}), "prompt_logprobs", "got -2"),
    ] {
        refused(&extra, param, said);
    }
}

#[test]
fn log_probabilities_are_asked_for_in_the_way_of_the_route() {
    let asked = |fields: Value| chat(fields).map(|request| request.sampling.extras.logprobs);
    assert_eq!(asked(json!({"logprobs": false})).unwrap(), None);
    assert_eq!(asked(json!({"logprobs": true})).unwrap(), Some(0));
    assert_eq!(
        asked(json!({"logprobs": true, "top_logprobs": 3})).unwrap(),
        Some(3)
    );
    let error = asked(json!({"top_logprobs": 3})).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("top_logprobs"));
    let asked = |fields: Value| completion(fields).map(|request| request.sampling.extras.logprobs);
    assert_eq!(asked(json!({"logprobs": 0})).unwrap(), Some(0));
    assert_eq!(asked(json!({"logprob_token_ids": [4]})).unwrap(), Some(0));
    assert!(asked(json!({"logprobs": true})).is_err());
}

#[test]
fn an_echo_may_stand_alone() {
    let alone = completion(json!({"echo": true, "max_tokens": 0})).unwrap();
    assert!(alone.echo && alone.only_prompt);
    let error = completion(json!({"max_tokens": 0})).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("max_tokens"));
}
