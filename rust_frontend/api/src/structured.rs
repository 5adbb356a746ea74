//! The fields of a request that say what its output must be.

use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::field::{self, wrong};

/// What an output must be.
#[derive(Debug, Clone, PartialEq)]
pub enum Structure {
    /// An instance of this JSON schema.
    JsonSchema(Value),
    /// A JSON object.
    JsonObject,
    /// A text that the expression matches as a whole.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A text of this grammar, EBNF or Lark.
    Grammar(String),
    /// Text with tagged parts.
    StructuralTag(Value),
}

/// What a request says about it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StructuredFields {
    /// `None`: any text.
    pub structure: Option<Structure>,
    /// The field that says so, for errors.
    pub param: &'static str,
    /// JSON without white space between its tokens.
    pub compact: bool,
    /// The white space that may stand there.
    pub whitespace: Option<String>,
    /// Objects have no properties but those that their schema names.
    pub closed: bool,
}

/// Fields of `structured_outputs`, those that are a constraint first.
const KNOWN: [&str; 10] = [
    "json",
    "regex",
    "choice",
    "grammar",
    "json_object",
    "structural_tag",
    "disable_any_whitespace",
    "disable_additional_properties",
    "whitespace_pattern",
    "disable_fallback",
];
const CONSTRAINTS: usize = 6;

impl StructuredFields {
    /// What `structured_outputs` would have to hold to say the same; `None` where any text will do.
    pub fn outputs(&self) -> Option<Map<String, Value>> {
        let (name, value) = match self.structure.as_ref()? {
            Structure::JsonSchema(schema) => ("json", schema.clone()),
            Structure::JsonObject => ("json_object", json!(true)),
            Structure::Regex(pattern) => ("regex", json!(pattern)),
            Structure::Choice(choices) => ("choice", json!(choices)),
            Structure::Grammar(text) => ("grammar", json!(text)),
            Structure::StructuralTag(tag) => ("structural_tag", tag.clone()),
        };
        let options = [
            ("disable_any_whitespace", self.compact.then(|| json!(true))),
            (
                "whitespace_pattern",
                self.whitespace.as_ref().map(|pattern| json!(pattern)),
            ),
            (
                "disable_additional_properties",
                self.closed.then(|| json!(true)),
            ),
        ];
        let options = options
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Some(
            std::iter::once((name.to_owned(), value))
                .chain(options)
                .collect(),
        )
    }

    /// Takes the fields out of a body.
    pub(crate) fn take(fields: &mut Map<String, Value>) -> Result<Self, ApiError> {
        let format = response_format(fields)?;
        let outputs = field::object(fields, "structured_outputs")?;
        match (format, outputs) {
            (Some(_), Some(_)) => Err(ApiError::invalid(
                "structured_outputs",
                "'structured_outputs' and 'response_format' both constrain the output; send one of them.",
            )),
            (Some((structure, param)), None) => Ok(Self {
                structure: Some(structure),
                param,
                ..Self::default()
            }),
            (None, Some(outputs)) => structured_outputs(outputs),
            (None, None) => Ok(Self::default()),
        }
    }
}

fn response_format(
    fields: &mut Map<String, Value>,
) -> Result<Option<(Structure, &'static str)>, ApiError> {
    const WANTED: &str = "\"text\", \"json_object\", \"json_schema\" or \"structural_tag\"";
    let Some(mut format) = field::object(fields, "response_format")? else {
        return Ok(None);
    };
    let kind = match format.get("type") {
        Some(Value::String(kind)) => kind.clone(),
        Some(other) => return Err(wrong("response_format.type", WANTED, other)),
        None => return Err(ApiError::missing("response_format.type")),
    };
    Ok(Some(match kind.as_str() {
        "text" => return Ok(None),
        "json_object" => (Structure::JsonObject, "response_format"),
        "json_schema" => {
            const PATH: &str = "response_format.json_schema";
            let Some(Value::Object(mut named)) = field::take(&mut format, "json_schema") else {
                return Err(ApiError::missing(PATH));
            };
            let Some(schema) = named.remove("schema") else {
                return Err(ApiError::missing("response_format.json_schema.schema"));
            };
            (
                Structure::JsonSchema(schema),
                "response_format.json_schema.schema",
            )
        }
        "structural_tag" => (
            Structure::StructuralTag(Value::Object(format)),
            "response_format",
        ),
        _ => return Err(wrong("response_format.type", WANTED, &Value::String(kind))),
    }))
}

fn structured_outputs(mut given: Map<String, Value>) -> Result<StructuredFields, ApiError> {
    given.retain(|_, value| !value.is_null());
    if let Some(name) = given.keys().find(|name| !KNOWN.contains(&name.as_str())) {
        let param = format!("structured_outputs.{name}");
        let message = format!("'{param}' is not known; known are {}.", KNOWN.join(", "));
        return Err(ApiError::invalid(param, message));
    }
    let present: Vec<&str> = KNOWN[..CONSTRAINTS]
        .iter()
        .copied()
        .filter(|name| given.contains_key(*name))
        .collect();
    let [name] = present[..] else {
        let got = if present.is_empty() {
            "none".to_owned()
        } else {
            present.join(" and ")
        };
        let message = format!(
            "'structured_outputs' must hold exactly one of {}; got {got}.",
            KNOWN[..CONSTRAINTS].join(", ")
        );
        return Err(ApiError::invalid("structured_outputs", message));
    };
    let value = given.remove(name).unwrap_or_default();
    let within = |error: ApiError| error.on(format!("structured_outputs.{name}"));
    let (structure, param) = structure(name, value).map_err(within)?;
    let options = |error: ApiError| error.on("structured_outputs");
    Ok(StructuredFields {
        structure: Some(structure),
        param,
        compact: field::boolean(&mut given, "disable_any_whitespace")
            .map_err(options)?
            .unwrap_or(false),
        whitespace: field::string(&mut given, "whitespace_pattern").map_err(options)?,
        closed: field::boolean(&mut given, "disable_additional_properties")
            .map_err(options)?
            .unwrap_or(false),
    })
}

fn structure(name: &str, value: Value) -> Result<(Structure, &'static str), ApiError> {
    let text = |value: Value, wanted: &str| match value {
        Value::String(text) if !text.trim().is_empty() => Ok(text),
        other => Err(wrong(name, wanted, &other)),
    };
    Ok(match name {
        "json" => (
            Structure::JsonSchema(parsed(name, value)?),
            "structured_outputs.json",
        ),
        "regex" => (
            Structure::Regex(text(value, "a regular expression that is not empty")?),
            "structured_outputs.regex",
        ),
        "grammar" => (
            Structure::Grammar(text(value, "a grammar that is not empty")?),
            "structured_outputs.grammar",
        ),
        "choice" => {
            const WANTED: &str = "a list of texts, none of them empty";
            let Value::Array(items) = value else {
                return Err(wrong(name, WANTED, &value));
            };
            if items.is_empty() {
                return Err(wrong(name, WANTED, &Value::Array(items)));
            }
            let choices = items.into_iter().map(|item| match item {
                Value::String(text) if !text.is_empty() => Ok(text),
                other => Err(wrong(name, WANTED, &other)),
            });
            (
                Structure::Choice(choices.collect::<Result<_, _>>()?),
                "structured_outputs.choice",
            )
        }
        "json_object" => match value {
            Value::Bool(true) => (Structure::JsonObject, "structured_outputs.json_object"),
            other => return Err(wrong(name, "true, or left out", &other)),
        },
        _ => (
            Structure::StructuralTag(parsed(name, value)?),
            "structured_outputs.structural_tag",
        ),
    })
}

/// A value that may come as JSON text.
fn parsed(name: &str, value: Value) -> Result<Value, ApiError> {
    let Value::String(text) = value else {
        return Ok(value);
    };
    serde_json::from_str(&text)
        .map_err(|error| ApiError::invalid(name, format!("'{name}' is no JSON: {error}.")))
}
