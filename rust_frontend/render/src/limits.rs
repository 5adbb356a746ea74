//! What a model's files say about its limits.

use std::path::Path;

use octavo_tokenizer::Tokenizer;
use serde_json::{Map, Value};

use crate::defaults::object;
use crate::prepared::Limits;
use crate::renderer::LoadError;

/// Where no file names a context: more than any model has.
const UNKNOWN: usize = 1 << 20;

/// Names under which config.json gives the context.
const CONTEXT: [&str; 3] = ["max_position_embeddings", "n_positions", "max_seq_len"];

/// Reads config.json, and of tokenizer_config.json `model_max_length`, which is huge where it means nothing.
pub(crate) fn read(dir: &Path, tokenizer: &Tokenizer) -> Result<Limits, LoadError> {
    let config = object(&dir.join("config.json"))?;
    let text = config.get("text_config").and_then(Value::as_object);
    let number = |fields: &Map<String, Value>, name: &str| {
        let value = fields.get(name)?.as_u64().filter(|value| *value > 0)?;
        usize::try_from(value).ok()
    };
    let both = |name: &str| number(&config, name).or_else(|| number(text?, name));
    let context = CONTEXT.iter().find_map(|name| both(name));
    let context = context.or_else(|| number(tokenizer.config(), "model_max_length"));
    Ok(Limits {
        max_model_len: context.unwrap_or(UNKNOWN).min(UNKNOWN),
        vocab_size: both("vocab_size").unwrap_or(0).max(tokenizer.vocab_size()),
    })
}
