//! The smaller fields of a response's request.

use serde_json::{Map, Value, json};

use super::object::ReasoningEcho;
use crate::error::ApiError;
use crate::field::{self, shown, wrong};
use crate::structured::{Structure, StructuredFields};
use crate::tools::ToolFields;

/// Fields that ask for something which octavo does not do, and the values that do not.
const REFUSED: [(&str, Option<i64>); 10] = [
    ("n", Some(1)),
    ("prompt_logprobs", None),
    ("logprob_token_ids", None),
    ("conversation", None),
    ("prompt", None),
    ("context_management", None),
    ("kv_transfer_params", None),
    ("ec_transfer_params", None),
    ("previous_input_messages", None),
    ("enable_response_messages", None),
];

/// What a response may be asked to include: the first two do something, the others belong to items that never come.
const INCLUDE: [&str; 8] = [
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
    "message.input_image.image_url",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
];

/// Most pairs of `metadata`, and most characters of a key and of a value, as in OpenAI's API.
const METADATA: (usize, usize, usize) = (16, 64, 512);

/// Refuses fields that ask for what octavo does not do.
pub(super) fn refuse(fields: &Map<String, Value>) -> Result<(), ApiError> {
    for (name, neutral) in REFUSED {
        let asks = |value: &&Value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::Array(items) => !items.is_empty(),
            Value::Object(items) => !items.is_empty(),
            other => neutral.is_none() || other.as_i64() != neutral,
        };
        if let Some(value) = fields.get(name).filter(asks) {
            let message = format!(
                "'{name}' is not supported; got {}. Leave it out.",
                shown(value)
            );
            return Err(ApiError::unsupported(name, message));
        }
    }
    Ok(())
}

/// Takes fields that need no effect here.
pub(super) fn quiet(fields: &mut Map<String, Value>) -> Result<(), ApiError> {
    field::object(fields, "stream_options")?;
    for name in ["service_tier", "prompt_cache_retention"] {
        field::string(fields, name)?;
    }
    for (name, _) in REFUSED {
        field::take(fields, name);
    }
    Ok(())
}

/// The form of the text.
pub(super) struct Text {
    pub(super) structured: StructuredFields,
    pub(super) shown: Value,
    pub(super) ignored: Vec<String>,
}

impl Text {
    pub(super) fn take(fields: &mut Map<String, Value>) -> Result<Self, ApiError> {
        let mut text = field::object(fields, "text")?.unwrap_or_default();
        let within = |error: ApiError| error.inside("text");
        let mut ignored = Vec::new();
        let mut show = Map::new();
        let format = field::object(&mut text, "format").map_err(within)?;
        let format = format.unwrap_or_else(|| Map::from_iter([("type".to_owned(), json!("text"))]));
        show.insert("format".to_owned(), Value::Object(format.clone()));
        if let Some(verbosity) = field::string(&mut text, "verbosity").map_err(within)? {
            if verbosity != "medium" {
                ignored.push("text.verbosity".to_owned());
            }
            show.insert("verbosity".to_owned(), Value::String(verbosity));
        }
        let own = structure(format)?;
        let given = StructuredFields::take(fields)?;
        if own.structure.is_some() && given.structure.is_some() {
            let message = format!(
                "'text.format' and '{}' both constrain the output; send one of them.",
                given.param
            );
            return Err(ApiError::invalid("text.format", message));
        }
        Ok(Self {
            structured: if own.structure.is_some() { own } else { given },
            shown: Value::Object(show),
            ignored,
        })
    }

    /// Refuses a form of the text where the answer may be calls.
    pub(super) fn fits(&self, tools: &ToolFields) -> Result<(), ApiError> {
        if self.structured.structure.is_none() || !tools.wants_calls() {
            return Ok(());
        }
        let message = "'text.format' cannot be combined with calls of tools. Leave 'tools' out, or send \
                       \"tool_choice\": \"none\".";
        Err(ApiError::invalid(self.structured.param, message))
    }
}

fn structure(mut format: Map<String, Value>) -> Result<StructuredFields, ApiError> {
    const WANTED: &str = "\"text\", \"json_object\" or \"json_schema\"";
    let kind = match format.get("type") {
        Some(Value::String(kind)) => kind.clone(),
        Some(other) => return Err(wrong("text.format.type", WANTED, other)),
        None => return Err(ApiError::missing("text.format.type")),
    };
    let (structure, param) = match kind.as_str() {
        "text" => return Ok(StructuredFields::default()),
        "json_object" => (Structure::JsonObject, "text.format"),
        "json_schema" => {
            let schema = field::take(&mut format, "schema");
            let schema = schema.ok_or_else(|| ApiError::missing("text.format.schema"))?;
            (Structure::JsonSchema(schema), "text.format.schema")
        }
        _ => return Err(wrong("text.format.type", WANTED, &Value::String(kind))),
    };
    Ok(StructuredFields {
        structure: Some(structure),
        param,
        ..StructuredFields::default()
    })
}

/// Reads `reasoning`.
pub(super) fn reasoning(
    fields: &mut Map<String, Value>,
    ignored: &mut Vec<String>,
) -> Result<ReasoningEcho, ApiError> {
    const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
    let mut given = field::object(fields, "reasoning")?.unwrap_or_default();
    let within = |error: ApiError| error.inside("reasoning");
    let effort = field::string(&mut given, "effort").map_err(within)?;
    if let Some(word) = effort.as_deref().filter(|word| !EFFORTS.contains(word)) {
        let wanted = format!("one of {}", EFFORTS.join(", "));
        return Err(wrong("reasoning.effort", &wanted, &Value::from(word)));
    }
    let summary = field::string(&mut given, "summary").map_err(within)?;
    if summary.as_deref().is_some_and(|summary| summary != "none") {
        ignored.push("reasoning.summary".to_owned());
    }
    Ok(ReasoningEcho { effort, summary })
}

/// What a response is to hold besides.
pub(super) struct Included {
    /// Thoughts, encoded.
    pub(super) thoughts: bool,
    /// Log probabilities of the text's tokens.
    pub(super) logprobs: bool,
}

/// Reads `include`.
pub(super) fn include(fields: &mut Map<String, Value>) -> Result<Included, ApiError> {
    let items = field::list(fields, "include")?.unwrap_or_default();
    for (index, item) in items.iter().enumerate() {
        if !item.as_str().is_some_and(|word| INCLUDE.contains(&word)) {
            let wanted = format!("one of {}", INCLUDE.join(", "));
            return Err(wrong(&format!("include.{index}"), &wanted, item));
        }
    }
    Ok(Included {
        thoughts: items.iter().any(|item| item == INCLUDE[0]),
        logprobs: items.iter().any(|item| item == INCLUDE[1]),
    })
}

/// Reads `top_logprobs`.
pub(super) fn top_logprobs(fields: &mut Map<String, Value>) -> Result<i32, ApiError> {
    let wanted = "an integer from 0 to 20";
    let given = field::integer(fields, "top_logprobs", 0, wanted)?.unwrap_or(0);
    match i32::try_from(given) {
        Ok(number) if number <= 20 => Ok(number),
        _ => Err(wrong("top_logprobs", wanted, &Value::from(given))),
    }
}

/// Reads `truncation`.
pub(super) fn truncates(fields: &mut Map<String, Value>) -> Result<bool, ApiError> {
    match field::string(fields, "truncation")?.as_deref() {
        None | Some("disabled") => Ok(false),
        Some("auto") => Ok(true),
        Some(other) => Err(wrong(
            "truncation",
            "\"auto\" or \"disabled\"",
            &Value::from(other),
        )),
    }
}

/// Reads `metadata`.
pub(super) fn metadata(fields: &mut Map<String, Value>) -> Result<Map<String, Value>, ApiError> {
    let given = field::object(fields, "metadata")?.unwrap_or_default();
    let (pairs, key, value) = METADATA;
    let fits = |(name, text): (&String, &Value)| {
        let length = text.as_str().map(|text| text.chars().count());
        name.chars().count() <= key && length.is_some_and(|length| length <= value)
    };
    if given.len() <= pairs && given.iter().all(fits) {
        return Ok(given);
    }
    let message = format!(
        "'metadata' may hold {pairs} pairs of a key of at most {key} characters and a string of at most {value}; got \
         {} pairs, or one that is longer or no string.",
        given.len()
    );
    Err(ApiError::invalid("metadata", message))
}
