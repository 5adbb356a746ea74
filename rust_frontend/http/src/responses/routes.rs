//! Routes of responses that were created before.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use octavo_api::{ApiError, InputItems, ResponseDeleted, ResponseObject};
use octavo_edge::{Caller, PathText, Refusal};
use serde_json::Value;

use super::events::{again, follow};
use super::missing;
use super::store::{Record, on};
use crate::app::AppState;

/// Items of a page, unless the client says how many.
const PAGE: usize = 20;
/// Most items of a page.
const MAX_PAGE: usize = 100;

type From = Option<Extension<Caller>>;

fn whose(caller: From) -> Caller {
    caller.map(|Extension(caller)| caller).unwrap_or_default()
}

async fn find(state: &AppState, id: &str, caller: &Caller) -> Result<Record, ApiError> {
    let found = state.responses.find(id, caller).await?;
    found.ok_or_else(|| missing(id))
}

/// The value of a key of a query.
fn value<'a>(query: Option<&'a str>, name: &str) -> Option<&'a str> {
    let mut pairs = query?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

fn wrong(name: &str, wanted: &str, got: &str) -> ApiError {
    let got: String = got.chars().take(60).collect();
    ApiError::invalid(name, format!("'{name}' must be {wanted}; got {got:?}."))
}

/// `GET /v1/responses/{id}`: how it is, or with `stream=true` its events behind `starting_after`.
pub(crate) async fn retrieve(
    State(state): State<Arc<AppState>>,
    caller: From,
    PathText(id): PathText,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let (caller, query) = (whose(caller), query.as_deref());
    let stream = match value(query, "stream") {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => return Err(wrong("stream", "true or false", other).into()),
    };
    let after = match value(query, "starting_after") {
        None => None,
        Some(text) => {
            let number = text.parse::<u64>().ok();
            let refused = || wrong("starting_after", "the number of an event", text);
            Some(number.ok_or_else(refused)?)
        }
    };
    let record = find(&state, &id, &caller).await?;
    if !stream {
        return Ok(Json(record.object).into_response());
    }
    if let Some(job) = state.responses.job(&id, &caller) {
        return Ok(follow(job, after, state.app.settings.keep_alive));
    }
    let record = find(&state, &id, &caller).await?;
    let events = record.events.ok_or_else(|| {
        let message = "'stream': only responses that were created with 'background' and 'stream' keep their events. Leave it out.";
        ApiError::invalid("stream", message)
    })?;
    Ok(again(&events, after))
}

/// `DELETE /v1/responses/{id}`. One that runs ends.
pub(crate) async fn delete(
    State(state): State<Arc<AppState>>,
    caller: From,
    PathText(id): PathText,
) -> Result<Json<ResponseDeleted>, Refusal> {
    let caller = whose(caller);
    if let Some(job) = state.responses.job(&id, &caller) {
        job.deleted.store(true, Ordering::SeqCst);
        job.cancel.cancel();
        job.end().await;
    }
    let deleted = match &state.responses.store {
        Some(store) => {
            let id = id.clone();
            on(store, move |store| store.delete(&id, &caller)).await?
        }
        None => false,
    };
    if !deleted {
        return Err(missing(&id).into());
    }
    Ok(Json(ResponseDeleted {
        id,
        object: ResponseObject::OBJECT.into(),
        deleted,
    }))
}

/// `POST /v1/responses/{id}/cancel`: ends one that runs in the background; one that has ended stays as it is.
pub(crate) async fn cancel(
    State(state): State<Arc<AppState>>,
    caller: From,
    PathText(id): PathText,
) -> Result<Json<ResponseObject>, Refusal> {
    let caller = whose(caller);
    if let Some(job) = state.responses.job(&id, &caller) {
        job.cancel.cancel();
        job.end().await;
    }
    let record = find(&state, &id, &caller).await?;
    if !record.object.background {
        let message = "Only responses that were created with 'background' can be cancelled; others end when their client leaves.";
        return Err(ApiError::invalid("response_id", message).into());
    }
    Ok(Json(record.object))
}

/// `GET /v1/responses/{id}/input_items`, with `limit`, `order` and `after`.
pub(crate) async fn input_items(
    State(state): State<Arc<AppState>>,
    caller: From,
    PathText(id): PathText,
    RawQuery(query): RawQuery,
) -> Result<Json<InputItems>, Refusal> {
    let query = query.as_deref();
    let limit = match value(query, "limit") {
        None => PAGE,
        Some(text) => {
            let number = text
                .parse()
                .ok()
                .filter(|number| (1..=MAX_PAGE).contains(number));
            number.ok_or_else(|| wrong("limit", "a number from 1 to 100", text))?
        }
    };
    let mut items = find(&state, &id, &whose(caller)).await?.input;
    match value(query, "order") {
        None | Some("desc") => items.reverse(),
        Some("asc") => {}
        Some(other) => return Err(wrong("order", "asc or desc", other).into()),
    }
    if let Some(after) = value(query, "after") {
        let at = items.iter().position(|item| item["id"] == after);
        let at =
            at.ok_or_else(|| wrong("after", "the id of an input item of this response", after))?;
        items.drain(..=at);
    }
    let has_more = items.len() > limit;
    items.truncate(limit);
    let id_of = |item: Option<&Value>| item?["id"].as_str().map(str::to_owned);
    Ok(Json(InputItems {
        object: "list".into(),
        first_id: id_of(items.first()),
        last_id: id_of(items.last()),
        data: items,
        has_more,
    }))
}
