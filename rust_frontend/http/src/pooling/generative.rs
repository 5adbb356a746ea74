//! `POST /generative_scoring`: how likely the model goes on with a label, behind a query and each of some items.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use octavo_api::{ApiError, GenerativeScoringRequest, PooledInput, PoolingOptions, ScoreItem};
use octavo_edge::{Refusal, RequestId, warn};
use octavo_engine::{Step, Submission};
use octavo_render::{Limits, Reading};
use octavo_wire::Tokens;
use octavo_wire::frontend::{Logprobs, SamplingExtras, SamplingParams};

use super::answer::{self, Head};
use super::work;
use crate::app::{App, AppState};
use crate::generate::{domain, limits, scheduling};
use crate::start::{self, Arrived, arrive, checked};

pub(super) async fn score(
    State(state): State<Arc<AppState>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, Refusal> {
    let Arrived { body, at, pinned } = arrive(&state, request).await?;
    let id = id.with_prefix("score");
    let name = id.clone();
    let ready = checked(&state, body, move |app, body| {
        let served = start::model(app, &body)?;
        let limits = limits(app)?;
        let mut request = GenerativeScoringRequest::from_body(body)?;
        pinned.apply(&mut request.scheduling)?;
        let submissions = prepare(app, &name, &request, limits)?;
        Ok((served, submissions, request))
    });
    let (model, submissions, request) = ready.await?;
    let (found, tokens) = work::all(&state.app, id.clone(), submissions, labels, at).await?;
    let item = |(index, found): (usize, Logprobs)| ScoreItem {
        index,
        object: "score",
        score: probability(&found, request.apply_softmax),
    };
    let count = found.len();
    let items = found.into_iter().enumerate().map(item);
    let answer = Head::new(id, model, tokens).list(items);
    let response = answer::json(&state, count, answer).await?;
    Ok(warn(response, &request.ignored))
}

fn prepare(
    app: &App,
    name: &str,
    request: &GenerativeScoringRequest,
    limits: Limits,
) -> Result<Vec<Submission>, ApiError> {
    app.renderer
        .known_ids(&request.label_token_ids, "label_token_ids", limits)?;
    let scheduling = scheduling(app, request.scheduling.clone())?;
    // Room for the label.
    let room = Limits {
        max_model_len: limits.max_model_len.saturating_sub(1),
        ..limits
    };
    let part = |input: &PooledInput, first: bool, field: &str| {
        let options = PoolingOptions {
            add_special_tokens: first && request.add_special_tokens,
            ..PoolingOptions::default()
        };
        let prompt = app
            .renderer
            .pooled(input, &options, Reading::default(), room, field);
        prompt.map(|prompt| prompt.ids)
    };
    let query = part(&request.query, !request.item_first, "query")?;
    let mut submissions = Vec::with_capacity(request.items.len());
    for (index, item) in request.items.iter().enumerate() {
        let field = format!("items.{index}");
        let item = part(item, request.item_first, &field)?;
        let parts = match request.item_first {
            true => [item.as_slice(), &query],
            false => [query.as_slice(), &item],
        };
        let prompt = parts.concat();
        if prompt.len() > room.max_model_len {
            let length = prompt.len().to_string();
            return Err(ApiError::text_too_long(field, &length, room.max_model_len));
        }
        submissions.push(Submission {
            name: format!("{name}-{index}"),
            prompt,
            sampling: one_token(&request.label_token_ids),
            priority: scheduling.priority,
            grammar: None,
            domain: domain(&scheduling),
            rank: scheduling.rank,
            session: scheduling.session_id.clone(),
            pooling: None,
            embeds: None,
        });
    }
    Ok(submissions)
}

/// Asks for the likeliest next token, and for how likely each of the labels is in its place.
fn one_token(labels: &[i32]) -> SamplingParams {
    SamplingParams {
        temperature: 0.0,
        extras: Some(SamplingExtras {
            logprobs: Some(0),
            logprob_token_ids: Tokens(labels.to_vec()),
            ..SamplingExtras::default()
        }),
        ..SamplingParams::new(0, 1)
    }
}

/// The log probabilities of the token that came next.
fn labels(step: Step) -> Result<Logprobs, ApiError> {
    let message = step.finish.and_then(|finish| finish.message);
    step.logprobs
        .filter(|found| found.width > 1)
        .ok_or_else(|| {
            ApiError::internal(message.unwrap_or_else(|| {
                "The engine ended the request without log probabilities.".to_owned()
            }))
        })
}

/// The probability of the first label: of all tokens, or with `among` of the labels alone.
#[allow(clippy::cast_possible_truncation, reason = "from 0 to 1")]
fn probability(found: &Logprobs, among: bool) -> f32 {
    // The first is of the token that was drawn.
    let labels = found.values.0.iter().skip(1).copied().map(f64::from);
    let Some(first) = labels.clone().next() else {
        return f32::NAN;
    };
    if !among {
        return first.exp() as f32;
    }
    // Differences to the first do not overflow where it is unlikely: then the score is 0.
    let sum: f64 = labels.map(|value| (value - first).exp()).sum();
    (1.0 / sum) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use octavo_wire::Floats;

    #[test]
    fn scores_are_of_the_first_label() {
        let found = Logprobs {
            width: 3,
            ids: Tokens(vec![9, 5, 6]),
            values: Floats(vec![-0.1, 0.25_f32.ln(), 0.5_f32.ln()]),
            ranks: Tokens(vec![1]),
        };
        assert!((probability(&found, false) - 0.25).abs() < 1e-6);
        assert!((probability(&found, true) - 1.0 / 3.0).abs() < 1e-6);
        let unlikely = Logprobs {
            values: Floats(vec![-0.1, -1e4, -1.0]),
            ..found
        };
        assert!(probability(&unlikely, true).abs() < 1e-6);
    }
}
