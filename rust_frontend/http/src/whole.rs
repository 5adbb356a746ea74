//! Answers that are not streamed: the fold of all pieces.

use std::borrow::Cow;

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use octavo_api::{
    ApiError, AssistantMessage, ChatChoice, ChatCompletion, Completion, CompletionChoice,
    ReasoningFields,
};
use octavo_parser::Message;
use octavo_render_http::events;

use crate::envelope::Identity;
use crate::output::{End, Output};
use crate::route::Route;

/// Waits for the end and answers with the whole text.
///
/// # Errors
/// The request failed, or the server ends.
pub(crate) async fn answer(
    mut output: Output,
    identity: Identity,
    reasoning: ReasoningFields,
) -> Result<Response, ApiError> {
    let prompt_ids = output.take_prompt_ids();
    let mut said = None;
    let mut text = String::new();
    let mut tokens = prompt_ids.is_some().then(Vec::new);
    let end = loop {
        let piece = output.next().await?;
        text.push_str(&piece.text);
        for event in &piece.events {
            said.get_or_insert_with(Message::default).add(event);
        }
        if let Some(tokens) = &mut tokens {
            tokens.extend(piece.tokens);
        }
        if let Some(end) = piece.end {
            break end;
        }
    };
    // Where a stop string ended the text, the engine still runs the request.
    drop(output);
    let answer = Answer {
        text,
        said,
        prompt_ids,
        tokens,
        end,
    };
    Ok(match identity.route {
        Route::Chat => Json(chat(identity, answer, reasoning)).into_response(),
        Route::Completion => Json(completion(identity, answer)).into_response(),
    })
}

/// The fold of all pieces.
struct Answer {
    text: String,
    /// Where the output is parsed; then there is no text.
    said: Option<Message>,
    prompt_ids: Option<Vec<i32>>,
    tokens: Option<Vec<i32>>,
    end: End,
}

fn chat(identity: Identity, answer: Answer, reasoning: ReasoningFields) -> ChatCompletion {
    let message = match answer.said {
        Some(said) => events::message(said, reasoning),
        None => AssistantMessage::text(answer.text),
    };
    ChatCompletion {
        id: identity.id,
        object: Cow::Borrowed(ChatCompletion::OBJECT),
        created: identity.created,
        model: identity.model,
        choices: vec![ChatChoice {
            index: 0,
            message,
            logprobs: None,
            finish_reason: Some(answer.end.reason),
            stop_reason: answer.end.stop,
            token_ids: answer.tokens,
        }],
        usage: answer.end.usage,
        prompt_token_ids: answer.prompt_ids,
    }
}

fn completion(identity: Identity, answer: Answer) -> Completion {
    Completion {
        id: identity.id,
        object: Cow::Borrowed(Completion::OBJECT),
        created: identity.created,
        model: identity.model,
        choices: vec![CompletionChoice {
            index: 0,
            text: answer.text,
            logprobs: None,
            finish_reason: Some(answer.end.reason),
            stop_reason: answer.end.stop,
            prompt_token_ids: answer.prompt_ids,
            token_ids: answer.tokens,
        }],
        usage: Some(answer.end.usage),
    }
}
