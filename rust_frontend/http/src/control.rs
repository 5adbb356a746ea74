//! Routes that change the engine's state. Like all routes they are open to whoever reaches the server.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use octavo_api::ApiError;
use octavo_edge::Refusal;
use serde_json::{Value, json};

use crate::app::AppState;
use crate::refusal::of_generate;

const RUNNING: &str = "reset_running_requests";

/// Lets no prompt find what was computed before. `reset_running_requests=true`: running requests start over.
pub(crate) async fn reset_prefix_cache(
    State(state): State<Arc<AppState>>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    let running = flag(query.as_deref().unwrap_or_default(), RUNNING)?;
    let args = BTreeMap::from([(RUNNING.to_owned(), running.to_string())]);
    let answer = state.app.generate.control("reset_prefix_cache", args).await;
    answer.map_err(of_generate)?;
    Ok(Json(json!({"success": true})))
}

/// Reads a boolean of a query; absent is false.
fn flag(query: &str, name: &str) -> Result<bool, ApiError> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    match pairs.into_iter().find(|(key, _)| *key == name) {
        None => Ok(false),
        Some((_, "true" | "True" | "1")) => Ok(true),
        Some((_, "false" | "False" | "0")) => Ok(false),
        Some((_, other)) => Err(ApiError::invalid(
            name,
            format!("'{name}' must be true or false; got \"{other}\"."),
        )),
    }
}
