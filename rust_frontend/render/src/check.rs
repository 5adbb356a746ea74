//! What token ids are held against.

use octavo_api::ApiError;

use crate::prepared::Limits;

/// Checks that a prompt has at least one token, leaves room for one more, and names no token that does not exist.
pub(crate) fn prompt(ids: &[u32], limits: Limits, param: &str) -> Result<(), ApiError> {
    if ids.is_empty() {
        return Err(ApiError::invalid(
            param,
            format!("'{param}' gives a prompt of no tokens; at least one is needed."),
        ));
    }
    if ids.len() >= limits.max_model_len {
        return Err(ApiError::too_long(param, ids.len(), limits.max_model_len));
    }
    match ids.iter().find(|id| !exists(i64::from(**id), limits)) {
        Some(id) => Err(unknown(i64::from(*id), limits, param)),
        None => Ok(()),
    }
}

/// Checks a text that becomes a vector: as a prompt, but that it needs no room behind it.
pub(crate) fn text(ids: &[u32], limits: Limits, param: &str) -> Result<(), ApiError> {
    if ids.is_empty() {
        return Err(ApiError::invalid(
            param,
            format!("'{param}' gives a text of no tokens; at least one is needed."),
        ));
    }
    if ids.len() > limits.max_model_len {
        let length = ids.len().to_string();
        return Err(ApiError::text_too_long(
            param,
            &length,
            limits.max_model_len,
        ));
    }
    match ids.iter().find(|id| !exists(i64::from(**id), limits)) {
        Some(id) => Err(unknown(i64::from(*id), limits, param)),
        None => Ok(()),
    }
}

/// Checks that all ids exist.
pub(crate) fn known(ids: &[i32], limits: Limits, param: &str) -> Result<(), ApiError> {
    match ids.iter().find(|id| !exists(i64::from(**id), limits)) {
        Some(id) => Err(unknown(i64::from(*id), limits, param)),
        None => Ok(()),
    }
}

fn exists(id: i64, limits: Limits) -> bool {
    usize::try_from(id).is_ok_and(|id| id < limits.vocab_size)
}

fn unknown(id: i64, limits: Limits, param: &str) -> ApiError {
    let message = format!(
        "'{param}' holds the token id {id}; this model's ids go from 0 to {}.",
        limits.vocab_size.saturating_sub(1)
    );
    ApiError::invalid(param, message)
}
