//! `GET /v1/models`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ApiError;

/// The list of served models.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelList {
    /// "list".
    pub object: String,
    /// One for each name.
    pub data: Vec<ModelCard>,
}

/// One served name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelCard {
    /// The name that requests use.
    pub id: String,
    /// "model".
    pub object: String,
    /// Unix seconds.
    pub created: u64,
    /// "octavo".
    pub owned_by: String,
    /// Tokens of prompt and output together; null until an engine was ready.
    pub max_model_len: Option<u64>,
}

impl ModelList {
    /// Lists names that share one engine. `created` in Unix seconds.
    pub fn new(names: &[String], created: u64, max_model_len: Option<u64>) -> Self {
        let card = |name: &String| ModelCard {
            id: name.clone(),
            object: "model".to_owned(),
            created,
            owned_by: "octavo".to_owned(),
            max_model_len,
        };
        Self {
            object: "list".to_owned(),
            data: names.iter().map(card).collect(),
        }
    }
}

/// The name under which an answer goes out: the one asked for, or the main one, which is the first.
///
/// # Errors
/// 404 for a name that is not served.
pub fn served_name(names: &[String], asked: Option<&str>) -> Result<String, ApiError> {
    match asked {
        Some(asked) if names.iter().any(|name| name == asked) => Ok(asked.to_owned()),
        Some(asked) => Err(ApiError::model_not_found(asked, names)),
        None => Ok(names.first().cloned().unwrap_or_default()),
    }
}
