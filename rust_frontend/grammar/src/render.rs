//! Writing a message in a format: the other direction of the parser, for round trips and documentation.

use serde::Deserialize;
use serde_json::{Map, Value};

/// How the arguments of a call are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgumentStyle {
    /// One JSON object.
    #[default]
    Json,
    /// Each by `param`.
    Params,
    /// `key=literal`, as in Python.
    Python,
    /// `key:value` with the quote token.
    TypedKv,
    /// Nested elements, each tag behind the quote token.
    Tree,
}

/// Texts of a format, with `{placeholders}`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Render {
    /// Thoughts, from the state that `reasoning_start` names; `{text}`.
    #[serde(default)]
    pub reasoning: String,
    /// The answer; `{text}`.
    #[serde(default = "text")]
    pub content: String,
    /// A message before a call, where messages have heads; `{text}`.
    #[serde(default)]
    pub preamble: String,
    /// Before the first call.
    #[serde(default)]
    pub open: String,
    /// Between two calls.
    #[serde(default)]
    pub join: String,
    /// After the last call.
    #[serde(default)]
    pub close: String,
    /// One call; `{name}`, `{name_json}`, `{args}`, `{index}`.
    #[serde(default)]
    pub call: String,
    /// How arguments are written.
    #[serde(default)]
    pub arguments: ArgumentStyle,
    /// One argument; `{key}`, `{value}`, `{string}` (whether it is text).
    #[serde(default)]
    pub param: String,
    /// Between two arguments.
    #[serde(default)]
    pub param_join: String,
    /// The token in place of quotes.
    #[serde(default)]
    pub quote: String,
}

fn text() -> String {
    "{text}".to_owned()
}

/// One call to write.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderedCall {
    /// Name of the tool.
    pub name: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
}

/// One message to write.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RenderedMessage {
    /// Thoughts; none where empty.
    pub reasoning: String,
    /// Answer; none where empty.
    pub content: String,
    /// Calls, in order.
    pub calls: Vec<RenderedCall>,
}

/// The texts around a call's arguments: what guided decoding forces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallShape {
    /// Before the first call.
    pub open: String,
    /// From the beginning of a call to its arguments.
    pub begin: String,
    /// From its arguments to its end.
    pub end: String,
    /// Between two calls.
    pub join: String,
    /// After the last call.
    pub close: String,
    /// How the arguments are written.
    pub arguments: ArgumentStyle,
}

impl Render {
    /// Return the texts around the arguments of a call of this tool, the `index`th of its message; none where the
    /// format has no calls.
    pub fn shape(&self, name: &str, index: usize) -> Option<CallShape> {
        let (begin, end) = self.call.split_once("{args}")?;
        let quoted = Value::String(name.to_owned()).to_string();
        let index = index.to_string();
        let fields = [
            ("name", name),
            ("name_json", quoted.as_str()),
            ("index", index.as_str()),
        ];
        Some(CallShape {
            open: self.open.clone(),
            begin: fill(begin, &fields),
            end: fill(end, &fields),
            join: self.join.clone(),
            close: self.close.clone(),
            arguments: self.arguments,
        })
    }

    /// Return the text with which calls begin, before any name: where a mask starts when calls are optional. Empty
    /// where a call begins with its name.
    pub fn trigger(&self) -> String {
        let whole = format!("{}{}", self.open, self.call);
        let fields = ["{name", "{index}", "{args}"]
            .iter()
            .filter_map(|field| whole.find(field));
        whole[..fields.min().unwrap_or(whole.len())].to_owned()
    }

    /// Write a message: thoughts, answer, calls.
    pub fn write(&self, message: &RenderedMessage) -> String {
        let mut out = String::new();
        if !message.reasoning.is_empty() {
            out.push_str(&fill(&self.reasoning, &[("text", &message.reasoning)]));
        }
        if !message.content.is_empty() {
            out.push_str(&fill(&self.content, &[("text", &message.content)]));
        }
        if message.calls.is_empty() {
            return out;
        }
        out.push_str(&self.open);
        for (index, call) in message.calls.iter().enumerate() {
            if index > 0 {
                out.push_str(&self.join);
            }
            let quoted = Value::String(call.name.clone()).to_string();
            let args = self.write_arguments(&call.arguments);
            let index = index.to_string();
            out.push_str(&fill(
                &self.call,
                &[
                    ("name", &call.name),
                    ("name_json", &quoted),
                    ("args", &args),
                    ("index", &index),
                ],
            ));
        }
        out.push_str(&self.close);
        out
    }

    fn write_arguments(&self, arguments: &Map<String, Value>) -> String {
        match self.arguments {
            ArgumentStyle::Json => Value::Object(arguments.clone()).to_string(),
            ArgumentStyle::Params => {
                let written = arguments.iter().map(|(key, value)| {
                    let (text, string) = match value {
                        Value::String(text) => (text.clone(), "true"),
                        other => (other.to_string(), "false"),
                    };
                    let kind = kind_of(value);
                    let fields = [
                        ("key", key.as_str()),
                        ("value", &text),
                        ("string", string),
                        ("type", kind),
                    ];
                    fill(&self.param, &fields)
                });
                written.collect::<Vec<_>>().join(&self.param_join)
            }
            ArgumentStyle::Python => {
                let written = arguments
                    .iter()
                    .map(|(key, value)| format!("{key}={}", python(value)));
                written.collect::<Vec<_>>().join(", ")
            }
            ArgumentStyle::Tree => self.tree(arguments),
            ArgumentStyle::TypedKv => typed(&Value::Object(arguments.clone()), &self.quote),
        }
    }

    fn tree(&self, arguments: &Map<String, Value>) -> String {
        arguments
            .iter()
            .map(|(key, value)| self.element(key, value))
            .collect()
    }

    fn element(&self, key: &str, value: &Value) -> String {
        let inside = match value {
            Value::String(text) => text.clone(),
            Value::Object(map) => self.tree(map),
            Value::Array(items) => items
                .iter()
                .map(|item| self.element("item", item))
                .collect(),
            other => other.to_string(),
        };
        format!("{0}<{key}>{inside}{0}</{key}>", self.quote)
    }
}

/// A value with a token in place of quotes.
pub(crate) fn typed(value: &Value, quote: &str) -> String {
    match value {
        Value::String(text) => format!("{quote}{text}{quote}"),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| typed(item, quote)).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(map) => {
            let fields: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{}:{}", typed_key(key, quote), typed(value, quote)))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        other => other.to_string(),
    }
}

/// A key, in quotes where it would not be read as one.
pub(crate) fn typed_key(key: &str, quote: &str) -> String {
    let plain = !key.is_empty()
        && key
            .chars()
            .all(|c| c.is_alphanumeric() || "_-.$".contains(c));
    if plain {
        key.to_owned()
    } else {
        format!("{quote}{key}{quote}")
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A value as a literal of Python.
pub(crate) fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(python).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(map) => {
            let fields: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{}: {}", Value::String(key.clone()), python(value)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

/// Put fields into a text; braces that hold no field stay.
fn fill(template: &str, fields: &[(&str, &str)]) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let field = fields.iter().find(|(name, _)| {
            rest[1..]
                .strip_prefix(name)
                .is_some_and(|after| after.starts_with('}'))
        });
        match field {
            Some((name, value)) => {
                out.push_str(value);
                rest = &rest[name.len() + 2..];
            }
            None => {
                out.push('{');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}
