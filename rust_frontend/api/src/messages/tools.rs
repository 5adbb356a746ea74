//! Anthropic's `tools` and `tool_choice` as those of a chat.

use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::field::{self, shown, wrong};
use crate::tools::{ToolChoice, ToolFields};

/// Takes both fields out of a body.
pub(super) fn take(fields: &mut Map<String, Value>) -> Result<ToolFields, ApiError> {
    let tools = field::list(fields, "tools")?.unwrap_or_default();
    let tools = tools.into_iter().enumerate();
    let tools = tools
        .map(|(index, tool)| read(index, tool))
        .collect::<Result<Vec<_>, _>>()?;
    let (choice, parallel) = match field::object(fields, "tool_choice")? {
        Some(given) => choice(given, &tools)?,
        None => (ToolChoice::Auto, true),
    };
    Ok(ToolFields {
        choice: if tools.is_empty() {
            ToolChoice::None
        } else {
            choice
        },
        tools,
        parallel,
    })
}

fn read(index: usize, tool: Value) -> Result<Value, ApiError> {
    let path = format!("tools.{index}");
    let Value::Object(mut fields) = tool else {
        let wanted =
            "an object such as {\"name\": \"f\", \"input_schema\": {\"type\": \"object\"}}";
        return Err(wrong(&path, wanted, &tool));
    };
    let within = |error: ApiError| error.inside(&path);
    match field::take(&mut fields, "type") {
        None => {}
        Some(Value::String(kind)) if kind == "custom" => {}
        Some(other) => {
            let message = format!(
                "'{path}.type' must be \"custom\"; got {}. Tools of Anthropic's own servers and clients are not supported.",
                shown(&other)
            );
            return Err(ApiError::unsupported(format!("{path}.type"), message));
        }
    }
    if field::boolean(&mut fields, "defer_loading").map_err(within)? == Some(true) {
        let message = format!(
            "'{path}.defer_loading' is not supported; got true. Leave it out: the tool is shown at once."
        );
        return Err(ApiError::unsupported(
            format!("{path}.defer_loading"),
            message,
        ));
    }
    let name = field::string(&mut fields, "name").map_err(within)?;
    let name = name.filter(|name| !name.trim().is_empty());
    let name = name.ok_or_else(|| ApiError::missing(&format!("{path}.name")))?;
    let schema = field::object(&mut fields, "input_schema").map_err(within)?;
    let schema = schema.ok_or_else(|| ApiError::missing(&format!("{path}.input_schema")))?;
    let mut function = Map::new();
    function.insert("name".to_owned(), Value::String(name));
    if let Some(text) = field::string(&mut fields, "description").map_err(within)? {
        function.insert("description".to_owned(), Value::String(text));
    }
    function.insert("parameters".to_owned(), Value::Object(schema));
    if let Some(strict) = field::boolean(&mut fields, "strict").map_err(within)? {
        function.insert("strict".to_owned(), Value::Bool(strict));
    }
    Ok(json!({"type": "function", "function": function}))
}

/// Which calls are wanted, and whether more than one at a time.
fn choice(mut given: Map<String, Value>, tools: &[Value]) -> Result<(ToolChoice, bool), ApiError> {
    const WANTED: &str = "\"auto\", \"any\", \"tool\" or \"none\"";
    let within = |error: ApiError| error.inside("tool_choice");
    let kind = field::string(&mut given, "type").map_err(within)?;
    let single = field::boolean(&mut given, "disable_parallel_tool_use").map_err(within)?;
    let choice = match kind.as_deref() {
        Some("auto") => ToolChoice::Auto,
        Some("none") => ToolChoice::None,
        Some("any") => ToolChoice::Required,
        Some("tool") => {
            let name = field::string(&mut given, "name").map_err(within)?;
            ToolChoice::Named(name.ok_or_else(|| ApiError::missing("tool_choice.name"))?)
        }
        None => return Err(ApiError::missing("tool_choice.type")),
        Some(other) => return Err(wrong("tool_choice.type", WANTED, &Value::from(other))),
    };
    let forced = matches!(choice, ToolChoice::Required | ToolChoice::Named(_));
    if forced && tools.is_empty() {
        let message =
            "'tool_choice' needs 'tools'; got none. Send the tools, or leave 'tool_choice' out.";
        return Err(ApiError::invalid("tool_choice", message));
    }
    if let ToolChoice::Named(name) = &choice {
        let of = |tool: &'_ Value| tool["function"]["name"].as_str().map(str::to_owned);
        let known: Vec<String> = tools.iter().filter_map(of).collect();
        if !known.contains(name) {
            let message = format!(
                "'tool_choice.name' is {}, which 'tools' does not hold; it has {}.",
                shown(&Value::from(name.as_str())),
                known[..known.len().min(20)].join(", ")
            );
            return Err(ApiError::invalid("tool_choice.name", message));
        }
    }
    Ok((choice, single != Some(true)))
}
