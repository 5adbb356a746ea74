//! The JSON of answers and chunks.
#![allow(clippy::unwrap_used)]

use std::borrow::Cow;

use octavo_api::{
    AssistantMessage, ChatChoice, ChatChunk, ChatChunkChoice, ChatCompletion, ChatDelta,
    Completion, CompletionChoice, FinishReason, ModelList, StopReason, Usage,
};
use serde_json::{json, to_value};

#[test]
fn an_answer_of_chat() {
    let answer = ChatCompletion {
        id: "chatcmpl-1".to_owned(),
        object: Cow::Borrowed(ChatCompletion::OBJECT),
        created: 7,
        model: "m".to_owned(),
        choices: vec![ChatChoice {
            index: 0,
            message: AssistantMessage::text("Paris".to_owned()),
            logprobs: None,
            finish_reason: Some(FinishReason::Stop),
            stop_reason: Some(StopReason::Text("END".to_owned())),
            token_ids: Some(vec![1, 2]),
        }],
        usage: Usage::new(5, 2, Some(4)),
        prompt_token_ids: Some(vec![5]),
        prompt_logprobs: None,
        metrics: None,
        weight_versions: None,
    };
    let wanted = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 7, "model": "m",
        "choices": [{
            "index": 0, "message": {"role": "assistant", "content": "Paris", "refusal": null}, "logprobs": null,
            "finish_reason": "stop", "stop_reason": "END", "token_ids": [1, 2],
        }],
        "prompt_token_ids": [5],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7, "prompt_tokens_details": {"cached_tokens": 4}},
    });
    assert_eq!(to_value(&answer).unwrap(), wanted);
    assert_eq!(
        serde_json::from_value::<ChatCompletion>(wanted).unwrap(),
        answer
    );
}

#[test]
fn chunks_have_a_finish_reason_that_is_null_until_the_last() {
    let chunk = |delta, finish_reason| ChatChunk {
        id: "c".to_owned(),
        object: Cow::Borrowed(ChatChunk::OBJECT),
        created: 7,
        model: "m".to_owned(),
        choices: vec![ChatChunkChoice {
            index: 0,
            delta,
            logprobs: None,
            finish_reason,
            stop_reason: None,
            token_ids: None,
        }],
        usage: None,
        prompt_token_ids: None,
        metrics: None,
        weight_versions: None,
    };
    let delta = ChatDelta {
        role: Some(Cow::Borrowed("assistant")),
        content: Some("P".to_owned()),
        ..ChatDelta::default()
    };
    let first = to_value(chunk(delta, None)).unwrap();
    let choice = json!({"index": 0, "delta": {"role": "assistant", "content": "P"}, "logprobs": null, "finish_reason": null});
    assert_eq!(
        first,
        json!({"id": "c", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": [choice]})
    );
    let last = to_value(chunk(ChatDelta::default(), Some(FinishReason::Length))).unwrap();
    assert_eq!(last["choices"][0]["delta"], json!({}));
    assert_eq!(last["choices"][0]["finish_reason"], "length");
}

#[test]
fn a_completion_and_the_models() {
    let choice = CompletionChoice {
        index: 0,
        text: "x".to_owned(),
        logprobs: None,
        finish_reason: Some(FinishReason::Stop),
        stop_reason: Some(StopReason::Token(2)),
        prompt_token_ids: None,
        token_ids: None,
        prompt_logprobs: None,
    };
    let answer = Completion {
        id: "cmpl-1".to_owned(),
        object: Cow::Borrowed(Completion::OBJECT),
        created: 7,
        model: "m".to_owned(),
        choices: vec![choice],
        usage: Some(Usage::new(1, 1, None)),
        metrics: None,
        weight_versions: None,
    };
    let value = to_value(answer).unwrap();
    assert_eq!(value["object"], "text_completion");
    assert_eq!(
        value["choices"][0],
        json!({"index": 0, "text": "x", "logprobs": null, "finish_reason": "stop", "stop_reason": 2})
    );
    assert_eq!(
        value["usage"],
        json!({"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2})
    );
    let models = to_value(ModelList::new(&["a".to_owned()], 7, Some(64))).unwrap();
    let card = json!({"id": "a", "object": "model", "created": 7, "owned_by": "octavo", "max_model_len": 64});
    assert_eq!(models, json!({"object": "list", "data": [card]}));
}
