//! What a model's files say about sampling: defaults for fields that a client leaves open, and end tokens.

use std::path::Path;

use octavo_tokenizer::Tokenizer;
use serde_json::{Map, Value};

use crate::renderer::LoadError;

/// Sampling defaults of generation_config.json that octavo has no parameter for, with the value that means nothing.
const UNUSED: [(&str, f64); 4] = [
    ("presence_penalty", 0.0),
    ("frequency_penalty", 0.0),
    ("typical_p", 1.0),
    ("min_new_tokens", 0.0),
];

/// Of one model.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Defaults {
    pub(crate) temperature: Option<f64>,
    pub(crate) top_p: Option<f64>,
    pub(crate) top_k: Option<u64>,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) min_p: Option<f64>,
    pub(crate) repetition_penalty: Option<f64>,
    /// Ids that end an output.
    pub(crate) eos: Vec<i32>,
    /// What was found and is not used.
    pub(crate) warnings: Vec<String>,
}

impl Defaults {
    /// Reads generation_config.json and config.json. Values out of range are passed over with a warning.
    ///
    /// # Errors
    /// A file that is there and is no JSON object.
    pub(crate) fn load(dir: &Path, tokenizer: &Tokenizer) -> Result<Self, LoadError> {
        let generation = object(&dir.join("generation_config.json"))?;
        let config = object(&dir.join("config.json"))?;
        let mut defaults = Self::read(&generation);
        defaults.eos = eos(&generation, &config, tokenizer);
        if defaults.eos.is_empty() {
            let warning = "no end token in generation_config.json, config.json or tokenizer_config.json: outputs end at max_tokens";
            defaults.warnings.push(warning.to_owned());
        }
        Ok(defaults)
    }

    fn read(generation: &Map<String, Value>) -> Self {
        let mut warnings = Vec::new();
        let mut number = |name: &str, allowed: &dyn Fn(f64) -> bool| {
            let value = generation.get(name).filter(|value| !value.is_null())?;
            let number = value.as_f64().filter(|number| allowed(*number));
            if number.is_none() {
                warnings.push(format!(
                    "generation_config.json: {name} is {value}, which is out of range; not used"
                ));
            }
            number
        };
        let temperature = number("temperature", &|value| value >= 0.0);
        let top_p = number("top_p", &|value| value > 0.0 && value <= 1.0);
        let top_k = number("top_k", &|value| value >= -1.0 && value.fract() == 0.0);
        let max_tokens = number("max_new_tokens", &|value| {
            value >= 1.0 && value.fract() == 0.0
        });
        let min_p = number("min_p", &|value| (0.0..=1.0).contains(&value));
        let repetition_penalty =
            number("repetition_penalty", &|value| (1e-6..=1e6).contains(&value));
        for (name, neutral) in UNUSED {
            if let Some(value) = generation
                .get(name)
                .filter(|value| !value.is_null() && value.as_f64() != Some(neutral))
            {
                warnings.push(format!("generation_config.json: {name} is {value}, which is not supported yet; not used"));
            }
        }
        Self {
            temperature,
            top_p,
            top_k: top_k.map(count),
            max_tokens: max_tokens.map(count),
            min_p,
            repetition_penalty,
            eos: Vec::new(),
            warnings,
        }
    }
}

/// A number that is whole; -1 counts as 0.
fn count(value: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and saturating is right"
    )]
    let whole = value.max(0.0) as u64;
    whole
}

/// End tokens: those of generation_config.json, or else of config.json, and the tokenizer's.
fn eos(
    generation: &Map<String, Value>,
    config: &Map<String, Value>,
    tokenizer: &Tokenizer,
) -> Vec<i32> {
    let mut ids = ids(generation.get("eos_token_id"));
    if ids.is_empty() {
        ids = self::ids(config.get("eos_token_id"));
    }
    if ids.is_empty() {
        ids = self::ids(
            config
                .get("text_config")
                .and_then(|text| text.get("eos_token_id")),
        );
    }
    let named = tokenizer
        .special()
        .get("eos_token")
        .and_then(|token| tokenizer.token_to_id(token));
    if let Some(id) = named
        .and_then(|id| i32::try_from(id).ok())
        .filter(|id| !ids.contains(id))
    {
        ids.push(id);
    }
    ids
}

/// One id or a list.
fn ids(field: Option<&Value>) -> Vec<i32> {
    let id = |value: &Value| {
        value
            .as_i64()
            .filter(|id| *id >= 0)
            .and_then(|id| i32::try_from(id).ok())
    };
    match field {
        Some(Value::Array(items)) => items.iter().filter_map(id).collect(),
        Some(one) => id(one).into_iter().collect(),
        None => Vec::new(),
    }
}

/// Reads a JSON object; empty where there is no such file.
pub(crate) fn object(path: &Path) -> Result<Map<String, Value>, LoadError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Map::new()),
        Err(error) => return Err(LoadError::File(path.to_owned(), error.to_string())),
    };
    serde_json::from_slice(&bytes)
        .map_err(|error| LoadError::File(path.to_owned(), error.to_string()))
}
