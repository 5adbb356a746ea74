//! Fields that OpenAI or vLLM define and octavo does not implement yet.
//!
//! To drop such a field in silence would change what the client gets without telling it. So each stands here with the
//! values that ask for nothing; any other value is refused by name. Whoever implements a field deletes its row.

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::field::{get, shown};

/// A generating route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Chat,
    Completion,
    /// `/inference/v1/generate`, less its sampling parameters.
    Generate,
}

/// Which routes define a field.
#[derive(Clone, Copy)]
enum On {
    Both,
    Chat,
    Completion,
    Generate,
}

impl On {
    fn defines(self, route: Route) -> bool {
        match self {
            Self::Both => route != Route::Generate,
            Self::Chat => route == Route::Chat,
            Self::Completion => route == Route::Completion,
            Self::Generate => route == Route::Generate,
        }
    }
}

/// Values, besides null, that ask for nothing.
#[derive(Clone, Copy)]
enum Neutral {
    /// None.
    Null,
    /// This boolean.
    Bool(bool),
    /// This number.
    Number(f64),
    /// One of these strings.
    Word(&'static [&'static str]),
    /// An empty list, object or string.
    Empty,
    /// A list of nothing but "text".
    ListText,
}

/// One field.
struct Row(&'static str, On, Neutral);

const ROWS: &[Row] = &[
    Row("functions", On::Chat, Neutral::Empty),
    Row("function_call", On::Chat, Neutral::Word(&["none"])),
    Row("best_of", On::Both, Neutral::Number(1.0)),
    Row("use_beam_search", On::Both, Neutral::Bool(false)),
    Row("length_penalty", On::Both, Neutral::Number(1.0)),
    Row("suffix", On::Completion, Neutral::Empty),
    Row(
        "spaces_between_special_tokens",
        On::Both,
        Neutral::Bool(true),
    ),
    Row("media_io_kwargs", On::Chat, Neutral::Empty),
    Row("mm_processor_kwargs", On::Chat, Neutral::Empty),
    Row("modalities", On::Chat, Neutral::ListText),
    Row("audio", On::Chat, Neutral::Null),
    Row("web_search_options", On::Chat, Neutral::Null),
    Row("verbosity", On::Chat, Neutral::Word(&["medium"])),
    Row(
        "service_tier",
        On::Chat,
        Neutral::Word(&["auto", "default"]),
    ),
    Row("store", On::Chat, Neutral::Bool(false)),
    Row("return_token_offsets", On::Both, Neutral::Bool(false)),
    Row("return_prompt_text", On::Chat, Neutral::Bool(false)),
    Row(
        "return_assistant_tokens_mask",
        On::Chat,
        Neutral::Bool(false),
    ),
    Row(
        "routed_experts_prompt_start",
        On::Both,
        Neutral::Number(0.0),
    ),
    Row("kv_transfer_params", On::Both, Neutral::Empty),
    Row("ec_transfer_params", On::Both, Neutral::Empty),
    Row("vllm_xargs", On::Both, Neutral::Empty),
    Row("features", On::Generate, Neutral::Null),
    Row("content_parts", On::Generate, Neutral::Empty),
    Row("output_mode", On::Generate, Neutral::Word(&["tokens"])),
    Row("return_token_ids", On::Generate, Neutral::Bool(false)),
    Row("kv_transfer_params", On::Generate, Neutral::Empty),
    Row("ec_transfer_params", On::Generate, Neutral::Empty),
];

/// The fields that stand here.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|Row(name, ..)| *name)
}

/// Refuses the first field that asks for something octavo does not do.
pub(crate) fn refuse(route: Route, fields: &Map<String, Value>) -> Result<(), ApiError> {
    for Row(name, _, neutral) in ROWS.iter().filter(|row| row.1.defines(route)) {
        let Some(value) = lookup(fields, name) else {
            continue;
        };
        if !neutral.holds(value) {
            let message = format!(
                "'{name}' is not supported yet; got {}. Leave it out{}.",
                shown(value),
                neutral.hint()
            );
            return Err(ApiError::unsupported(*name, message));
        }
    }
    Ok(())
}

/// The fields that are left when all that are known were taken, but for those that stand here and ask for nothing.
pub(crate) fn unknown(route: Route, fields: Map<String, Value>) -> Vec<String> {
    let stands = |name: &str| {
        ROWS.iter()
            .any(|Row(known, on, _)| *known == name && on.defines(route))
    };
    let left = fields
        .into_iter()
        .filter(|(name, value)| !value.is_null() && !stands(name));
    left.map(|(name, _)| name).collect()
}

/// Finds a field by its dotted name.
fn lookup<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    match name.split_once('.') {
        None => get(fields, name),
        Some((outer, inner)) => get(fields, outer)?.get(inner),
    }
}

impl Neutral {
    fn holds(self, value: &Value) -> bool {
        match (self, value) {
            (_, Value::Null) => true,
            (Self::Bool(neutral), Value::Bool(given)) => neutral == *given,
            (Self::Number(neutral), Value::Number(given)) => given.as_f64() == Some(neutral),
            (Self::Word(neutral), Value::String(given)) => neutral.contains(&given.as_str()),
            (Self::Empty, Value::Array(given)) => given.is_empty(),
            (Self::Empty, Value::Object(given)) => given.is_empty(),
            (Self::Empty, Value::String(given)) => given.is_empty(),
            (Self::ListText, Value::Array(given)) => given.iter().all(|item| item == "text"),
            _ => false,
        }
    }

    /// What may be sent instead.
    fn hint(self) -> String {
        match self {
            Self::Null => String::new(),
            Self::Bool(neutral) => format!(" or send {neutral}"),
            Self::Number(neutral) => format!(" or send {neutral}"),
            Self::Word(neutral) => format!(" or send \"{}\"", neutral.join("\" or \"")),
            Self::Empty => " or send it empty".to_owned(),
            Self::ListText => " or send [\"text\"]".to_owned(),
        }
    }
}
