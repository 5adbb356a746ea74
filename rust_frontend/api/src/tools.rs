//! The fields of a request that are about tools.

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::field::{self, shown, wrong};

/// Which calls a request wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// None: what looks like a call is text.
    #[default]
    None,
    /// The model decides.
    Auto,
    /// At least one.
    Required,
    /// One of this tool.
    Named(String),
}

/// What a request says about tools.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolFields {
    /// As the client sent them, each checked to be a function with a name; empty where there are none.
    pub tools: Vec<Value>,
    /// `auto` where there are tools and nothing else is said.
    pub choice: ToolChoice,
    /// Whether an answer may hold more than one call. Default true.
    pub parallel: bool,
}

impl ToolFields {
    /// Whether what looks like a call is one.
    pub fn wants_calls(&self) -> bool {
        !self.tools.is_empty() && self.choice != ToolChoice::None
    }

    /// Takes the fields out of a body.
    pub(crate) fn take(fields: &mut Map<String, Value>) -> Result<Self, ApiError> {
        let tools = field::list(fields, "tools")?.unwrap_or_default();
        for (index, tool) in tools.iter().enumerate() {
            check(index, tool)?;
        }
        let choice = choice(field::take(fields, "tool_choice"), &tools)?;
        let parallel = field::boolean(fields, "parallel_tool_calls")?.unwrap_or(true);
        Ok(Self {
            tools,
            choice,
            parallel,
        })
    }
}

/// Checks the form of one tool.
fn check(index: usize, tool: &Value) -> Result<(), ApiError> {
    let path = format!("tools.{index}");
    let wanted = "an object such as {\"type\": \"function\", \"function\": {\"name\": \"f\"}}";
    let Some(fields) = tool.as_object() else {
        return Err(wrong(&path, wanted, tool));
    };
    match fields.get("type") {
        Some(Value::String(kind)) if kind == "function" => {}
        None => return Err(ApiError::missing(&format!("{path}.type"))),
        Some(other) => {
            let message = format!(
                "'{path}.type' must be \"function\"; got {}. Other kinds of tools are not supported.",
                shown(other)
            );
            return Err(ApiError::unsupported(format!("{path}.type"), message));
        }
    }
    let function = match fields.get("function") {
        Some(Value::Object(function)) => function,
        None => return Err(ApiError::missing(&format!("{path}.function"))),
        Some(other) => return Err(wrong(&format!("{path}.function"), "an object", other)),
    };
    let path = format!("{path}.function");
    match function.get("name") {
        Some(Value::String(name)) if !name.trim().is_empty() => {}
        None | Some(Value::Null) => return Err(ApiError::missing(&format!("{path}.name"))),
        Some(other) => return Err(wrong(&format!("{path}.name"), "a name", other)),
    }
    let optional = [
        (
            "description",
            "a string",
            Value::is_string as fn(&Value) -> bool,
        ),
        ("parameters", "a JSON schema, an object", Value::is_object),
        ("strict", "true or false", Value::is_boolean),
    ];
    for (name, wanted, holds) in optional {
        if let Some(value) = function
            .get(name)
            .filter(|value| !value.is_null() && !holds(value))
        {
            return Err(wrong(&format!("{path}.{name}"), wanted, value));
        }
    }
    Ok(())
}

fn choice(value: Option<Value>, tools: &[Value]) -> Result<ToolChoice, ApiError> {
    const WANTED: &str = "\"none\", \"auto\", \"required\" or {\"type\": \"function\", \"function\": {\"name\": \"...\"}}";
    let choice = match value {
        None if tools.is_empty() => return Ok(ToolChoice::None),
        None => return Ok(ToolChoice::Auto),
        Some(Value::String(word)) => match word.as_str() {
            "none" => return Ok(ToolChoice::None),
            "auto" => ToolChoice::Auto,
            "required" => ToolChoice::Required,
            _ => return Err(wrong("tool_choice", WANTED, &Value::String(word))),
        },
        Some(value) => {
            let kind = value.get("type").and_then(Value::as_str);
            let name = value.pointer("/function/name").and_then(Value::as_str);
            match (kind, name) {
                (Some("function"), Some(name)) => ToolChoice::Named(name.to_owned()),
                (Some("function"), None) => {
                    return Err(ApiError::missing("tool_choice.function.name"));
                }
                _ => return Err(wrong("tool_choice", WANTED, &value)),
            }
        }
    };
    if tools.is_empty() {
        return Err(ApiError::invalid(
            "tool_choice",
            "'tool_choice' needs 'tools'; got none. Send the tools, or leave 'tool_choice' out.",
        ));
    }
    if let ToolChoice::Named(name) = &choice {
        let names = || {
            tools
                .iter()
                .filter_map(|tool| tool.pointer("/function/name")?.as_str())
        };
        if !names().any(|known| known == name) {
            let known: Vec<&str> = names().take(20).collect();
            let message = format!(
                "'tool_choice' names the tool {name:?}, which 'tools' does not hold; it has {}.",
                known.join(", ")
            );
            return Err(ApiError::invalid("tool_choice", message));
        }
    }
    Ok(choice)
}
