//! `POST /generative_scoring`: how likely a model that makes tokens goes on with some of them.

use serde_json::Value;

use super::input::{self, PooledInput};
use super::unknown;
use crate::body::Body;
use crate::error::ApiError;
use crate::field;
use crate::sampling::token_id;
use crate::scheduling::SchedulingFields;

/// Labels of one request, at most.
const MAX_LABELS: usize = 128;

/// A checked request.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerativeScoringRequest {
    /// What stands in every prompt: a text or token ids.
    pub query: PooledInput,
    /// What stands in one prompt each, at least one.
    pub items: Vec<PooledInput>,
    /// Tokens that may come next, at least one, each once; the score is the first one's.
    pub label_token_ids: Vec<i32>,
    /// Whether probabilities are of the labels alone, so that they sum to 1. Default true.
    pub apply_softmax: bool,
    /// Whether the item stands before the query. Default false.
    pub item_first: bool,
    /// Whether the tokenizer adds its own special tokens to what comes first. Default true.
    pub add_special_tokens: bool,
    /// When to serve it, and beside whom.
    pub scheduling: SchedulingFields,
    /// Names of fields that nobody knows.
    pub ignored: Vec<String>,
}

impl GenerativeScoringRequest {
    /// Checks a body.
    ///
    /// # Errors
    /// 400 that names the field, with what is allowed.
    pub fn from_body(body: Body) -> Result<Self, ApiError> {
        let mut fields = body.fields;
        field::take(&mut fields, "model");
        let query = field::take(&mut fields, "query").ok_or_else(|| ApiError::missing("query"))?;
        let mut queries = input::texts("query", query)?;
        let Some(query) = queries.pop().filter(|_| queries.is_empty()) else {
            let message = "'query' must be one text or one list of token ids.";
            return Err(ApiError::invalid("query", message));
        };
        let items = field::list(&mut fields, "items")?.ok_or_else(|| ApiError::missing("items"))?;
        if matches!(items.first(), Some(Value::Number(_))) {
            let message = "'items' must be a list of texts, or of lists of token ids.";
            return Err(ApiError::invalid("items", message));
        }
        Ok(Self {
            query,
            items: input::texts("items", Value::Array(items))?,
            label_token_ids: labels(&mut fields)?,
            apply_softmax: field::boolean(&mut fields, "apply_softmax")?.unwrap_or(true),
            item_first: field::boolean(&mut fields, "item_first")?.unwrap_or(false),
            add_special_tokens: field::boolean(&mut fields, "add_special_tokens")?.unwrap_or(true),
            scheduling: SchedulingFields::take(&mut fields)?,
            ignored: unknown(fields),
        })
    }
}

fn labels(fields: &mut serde_json::Map<String, Value>) -> Result<Vec<i32>, ApiError> {
    const NAME: &str = "label_token_ids";
    let items = field::list(fields, NAME)?.ok_or_else(|| ApiError::missing(NAME))?;
    let ids: Vec<i32> = items
        .iter()
        .map(|item| token_id(item, NAME))
        .collect::<Result<_, _>>()?;
    let mut distinct = ids.clone();
    distinct.sort_unstable();
    distinct.dedup();
    if ids.is_empty() || ids.len() > MAX_LABELS || distinct.len() < ids.len() {
        let message = format!(
            "'{NAME}' must hold from 1 to {MAX_LABELS} token ids, each once; got {}.",
            ids.len()
        );
        return Err(ApiError::invalid(NAME, message));
    }
    Ok(ids)
}
