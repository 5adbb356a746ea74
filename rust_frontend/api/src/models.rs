//! `GET /v1/models`.

use serde::{Deserialize, Serialize};

/// The list of served models.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelList {
    /// "list".
    pub object: String,
    /// One for each name.
    pub data: Vec<ModelCard>,
}

/// One served name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
