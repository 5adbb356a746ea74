//! From a request to a prompt: what went before is found, and where it is too long and may be cut, it is.

use std::sync::Arc;

use octavo_api::{ApiError, ItemStatus, ResponseStatus, ResponsesRequest};
use octavo_edge::Caller;
use octavo_render::Prepared;
use serde_json::Value;

use super::Responses;
use crate::app::{App, AppState};
use crate::start::render;

/// Longest chain of responses that a prompt is made of.
const MAX_CHAIN: usize = 1024;

/// Collects the items of the responses before this one, the oldest first.
///
/// # Errors
/// 400 for one that is not there or not done.
pub(super) async fn history(
    responses: &Responses,
    previous: Option<&str>,
    caller: &Caller,
) -> Result<Vec<Value>, ApiError> {
    let mut parts: Vec<Vec<Value>> = Vec::new();
    let mut next = previous.map(str::to_owned);
    while let Some(id) = next {
        let refused = |code: &'static str, why: &str| {
            let shown: String = id.chars().take(64).collect();
            let message = format!("'previous_response_id': the response {shown:?} {why}.");
            ApiError {
                code,
                ..ApiError::invalid("previous_response_id", message)
            }
        };
        if parts.len() >= MAX_CHAIN {
            return Err(refused(
                "previous_response_too_long",
                "stands behind too many others; send the conversation as 'input'",
            ));
        }
        let found = responses.find(&id, caller).await?;
        let record = found.ok_or_else(|| {
            refused(
                "previous_response_not_found",
                "is not there: it was not stored, is too old, or belongs to another key",
            )
        })?;
        if matches!(
            record.object.status,
            ResponseStatus::Queued | ResponseStatus::InProgress
        ) {
            return Err(refused(
                "previous_response_not_done",
                "still runs. Wait for it, or cancel it",
            ));
        }
        let mut items = record.input;
        for item in record.object.output {
            // A call that was cut has no arguments that a template could read.
            if item.status() == ItemStatus::Completed
                || !matches!(item, octavo_api::OutputItem::FunctionCall { .. })
            {
                items.push(serde_json::to_value(item).unwrap_or_default());
            }
        }
        parts.push(items);
        next = record.object.previous_response_id;
    }
    Ok(parts.into_iter().rev().flatten().collect())
}

/// Renders the conversation; where it may be cut, without as many of its oldest items as it takes.
pub(super) async fn prepare(
    state: &Arc<AppState>,
    mut request: ResponsesRequest,
    before: Vec<Value>,
) -> Result<(ResponsesRequest, Prepared), ApiError> {
    let worker = Arc::clone(state);
    let length = serde_json::to_vec(&before).map_or(usize::MAX, |text| text.len());
    let job = move || {
        let prepared = fit(&worker.app, &mut request, &before).map_err(of_input)?;
        Ok((request, prepared))
    };
    // Rendering takes as long as compiling a grammar where there is one.
    state.compute.run(length.max(64 << 10), job).await
}

/// What is said of messages, which the client did not send, is said of its input.
pub(super) fn of_input(error: ApiError) -> ApiError {
    match error.param.as_deref() {
        Some("messages") => ApiError {
            message: error.message.replace("'messages'", "'input'"),
            ..error.on("input")
        },
        _ => error,
    }
}

fn fit(app: &App, request: &mut ResponsesRequest, before: &[Value]) -> Result<Prepared, ApiError> {
    let mut try_without = |skipped: usize| {
        request.chat.messages = request.messages(before, skipped)?;
        render(app, &mut request.chat)
    };
    let whole = try_without(0);
    let too_long = |result: &Result<Prepared, ApiError>| matches!(result, Err(error) if error.code == "context_length_exceeded");
    let items: Vec<&Value> = before.iter().chain(&request.input).collect();
    if !request.truncates || !too_long(&whole) {
        return whole;
    }
    let starts = starts(&items);
    let mut try_from = |at: usize| {
        request.chat.messages = request.messages(before, starts[at])?;
        render(app, &mut request.chat)
    };
    // The first place from which all that follows fits.
    let (mut low, mut high) = (0, starts.len());
    let mut best = whole;
    while low < high {
        let middle = usize::midpoint(low, high);
        let result = try_from(middle);
        if too_long(&result) {
            low = middle + 1;
        } else {
            high = middle;
            best = result;
        }
    }
    best
}

/// Places at which a conversation may begin: messages of users, and the last item.
fn starts(items: &[&Value]) -> Vec<usize> {
    let user = |item: &Value| item["type"] == "message" && item["role"] == "user";
    let places = (1..items.len()).filter(|&at| user(items[at]));
    places.collect()
}
