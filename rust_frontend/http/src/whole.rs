//! Answers that are not streamed: the fold of all pieces.

use std::borrow::Cow;

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use octavo_api::{
    ApiError, AssistantMessage, ChatChoice, ChatCompletion, Completion, CompletionChoice,
    FinishReason, PromptLogprobs, StopReason, Usage,
};
use octavo_parser::Message;
use octavo_render_http::events;

use crate::envelope::{Identity, Style};
use crate::logprobs::Shown;
use crate::output::{End, Piece};
use crate::outputs::Outputs;
use crate::route::Route;

/// Waits for the end of all outputs and answers with their whole texts.
///
/// # Errors
/// The request failed, or the server ends.
pub(crate) async fn answer(
    mut outputs: Outputs,
    prompt_ids: Vec<Option<Vec<i32>>>,
    identity: Identity,
    style: Style,
) -> Result<Response, ApiError> {
    let mut answers: Vec<Answer> = prompt_ids.into_iter().map(Answer::new).collect();
    let mut piece = Piece::default();
    while outputs.open() > 0 {
        let index = outputs.next(&mut piece).await?;
        if let Some(answer) = answers.get_mut(index as usize) {
            answer.add(&mut piece);
        }
    }
    let usage = outputs.usage();
    let metrics = outputs.timing().filter(|_| style.timed);
    let weight_versions = outputs.weight_versions();
    Ok(match identity.route {
        Route::Chat => Json(ChatCompletion {
            metrics,
            weight_versions,
            ..chat(identity, answers, usage, &style)
        })
        .into_response(),
        Route::Completion => Json(Completion {
            metrics,
            weight_versions,
            ..completion(identity, answers, usage)
        })
        .into_response(),
    })
}

/// The fold of all pieces of one output.
#[derive(Default)]
struct Answer {
    text: String,
    /// Where the output is parsed; then there is no text.
    said: Option<Message>,
    prompt_ids: Option<Vec<i32>>,
    tokens: Option<Vec<i32>>,
    logprobs: Option<Shown>,
    prompt_logprobs: Option<PromptLogprobs>,
    end: Option<End>,
}

impl Answer {
    fn new(prompt_ids: Option<Vec<i32>>) -> Self {
        Self {
            tokens: prompt_ids.is_some().then(Vec::new),
            prompt_ids,
            ..Self::default()
        }
    }

    fn add(&mut self, piece: &mut Piece) {
        self.text.push_str(&piece.text);
        for event in &piece.events {
            self.said.get_or_insert_with(Message::default).add(event);
        }
        if let Some(tokens) = &mut self.tokens {
            tokens.extend_from_slice(&piece.tokens);
        }
        match (&mut self.logprobs, piece.logprobs.take()) {
            (Some(all), Some(more)) => all.extend(more),
            (all, more) => *all = all.take().or(more),
        }
        self.prompt_logprobs = self.prompt_logprobs.take().or(piece.prompt_logprobs.take());
        self.end = self.end.take().or(piece.end.take());
    }
}

fn chat(identity: Identity, answers: Vec<Answer>, usage: Usage, style: &Style) -> ChatCompletion {
    let mut prompt_token_ids = None;
    let mut prompt_logprobs = None;
    let mut choices = Vec::with_capacity(answers.len());
    for (index, answer) in (0..).zip(answers) {
        prompt_token_ids = prompt_token_ids.or(answer.prompt_ids);
        prompt_logprobs = prompt_logprobs.or(answer.prompt_logprobs);
        let mut message = match answer.said {
            Some(said) => events::message(said, style.reasoning),
            None => AssistantMessage::text(answer.text),
        };
        if let Some(echo) = &style.echo {
            message.content.get_or_insert_default().insert_str(0, echo);
        }
        let (finish_reason, stop_reason) = ended(answer.end);
        choices.push(ChatChoice {
            index,
            message,
            logprobs: match answer.logprobs {
                Some(Shown::Chat(logprobs)) => Some(logprobs),
                _ => None,
            },
            finish_reason,
            stop_reason,
            token_ids: answer.tokens,
        });
    }
    ChatCompletion {
        id: identity.id,
        object: Cow::Borrowed(ChatCompletion::OBJECT),
        created: identity.created,
        model: identity.model,
        choices,
        usage,
        prompt_token_ids,
        prompt_logprobs,
        metrics: None,
        weight_versions: None,
    }
}

fn completion(identity: Identity, answers: Vec<Answer>, usage: Usage) -> Completion {
    let choice = |(index, answer): (u32, Answer)| {
        let (finish_reason, stop_reason) = ended(answer.end);
        CompletionChoice {
            index,
            text: answer.text,
            logprobs: match answer.logprobs {
                Some(Shown::Completion(logprobs)) => Some(logprobs),
                _ => None,
            },
            finish_reason,
            stop_reason,
            prompt_token_ids: answer.prompt_ids,
            token_ids: answer.tokens,
            prompt_logprobs: answer.prompt_logprobs,
        }
    };
    Completion {
        id: identity.id,
        object: Cow::Borrowed(Completion::OBJECT),
        created: identity.created,
        model: identity.model,
        choices: (0..).zip(answers).map(choice).collect(),
        usage: Some(usage),
        metrics: None,
        weight_versions: None,
    }
}

fn ended(end: Option<End>) -> (Option<FinishReason>, Option<StopReason>) {
    end.map_or((None, None), |end| (Some(end.reason), end.stop))
}
