//! Answers that are not streamed: the fold of all pieces.

use std::borrow::Cow;

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use octavo_api::{
    ApiError, AssistantMessage, ChatChoice, ChatCompletion, Completion, CompletionChoice,
};

use crate::envelope::Identity;
use crate::output::{End, Output};
use crate::route::Route;

/// Waits for the end and answers with the whole text.
///
/// # Errors
/// The request failed, or the server ends.
pub(crate) async fn answer(mut output: Output, identity: Identity) -> Result<Response, ApiError> {
    let mut text = String::new();
    let end = loop {
        let piece = output.next().await?;
        text.push_str(&piece.text);
        if let Some(end) = piece.end {
            break end;
        }
    };
    // Where a stop string ended the text, the engine still runs the request.
    drop(output);
    Ok(match identity.route {
        Route::Chat => Json(chat(identity, text, end)).into_response(),
        Route::Completion => Json(completion(identity, text, end)).into_response(),
    })
}

fn chat(identity: Identity, text: String, end: End) -> ChatCompletion {
    ChatCompletion {
        id: identity.id,
        object: Cow::Borrowed(ChatCompletion::OBJECT),
        created: identity.created,
        model: identity.model,
        choices: vec![ChatChoice {
            index: 0,
            message: AssistantMessage {
                role: Cow::Borrowed("assistant"),
                content: Some(text),
                refusal: None,
            },
            logprobs: None,
            finish_reason: Some(end.reason),
            stop_reason: end.stop,
        }],
        usage: end.usage,
    }
}

fn completion(identity: Identity, text: String, end: End) -> Completion {
    Completion {
        id: identity.id,
        object: Cow::Borrowed(Completion::OBJECT),
        created: identity.created,
        model: identity.model,
        choices: vec![CompletionChoice {
            index: 0,
            text,
            logprobs: None,
            finish_reason: Some(end.reason),
            stop_reason: end.stop,
        }],
        usage: Some(end.usage),
    }
}
