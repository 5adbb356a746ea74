//! `tools` and `tool_choice` of a response as those of a chat, and as the response shows them.

use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::field::{self, shown, wrong};
use crate::tools::{ToolChoice, ToolFields};

/// For the engine and for the client.
pub(super) struct Tools {
    pub(super) fields: ToolFields,
    pub(super) shown: Vec<Value>,
    pub(super) choice: Value,
}

impl Tools {
    /// Takes the fields out of a body.
    pub(super) fn take(fields: &mut Map<String, Value>) -> Result<Self, ApiError> {
        let given = field::list(fields, "tools")?.unwrap_or_default();
        let (mut tools, mut shown) = (Vec::new(), Vec::new());
        for (index, tool) in given.into_iter().enumerate() {
            let (tool, show) = function(index, tool)?;
            tools.push(tool);
            shown.push(show);
        }
        let parallel = field::boolean(fields, "parallel_tool_calls")?.unwrap_or(true);
        let given = field::take(fields, "tool_choice");
        let choice = given.clone().unwrap_or_else(|| Value::from("auto"));
        let wanted = given.map_or(Ok(ToolChoice::Auto), |given| read(&given, &mut tools))?;
        if tools.is_empty() && matches!(wanted, ToolChoice::Required | ToolChoice::Named(_)) {
            let message = "'tool_choice' needs 'tools'; got none. Send the tools, or leave 'tool_choice' out.";
            return Err(ApiError::invalid("tool_choice", message));
        }
        let fields = ToolFields {
            choice: if tools.is_empty() {
                ToolChoice::None
            } else {
                wanted
            },
            tools,
            parallel,
        };
        Ok(Self {
            fields,
            shown,
            choice,
        })
    }
}

/// Checks a tool. Returns it in a chat's form, and as the response shows it.
fn function(index: usize, tool: Value) -> Result<(Value, Value), ApiError> {
    let path = format!("tools.{index}");
    let Value::Object(mut given) = tool else {
        let wanted = "an object such as {\"type\": \"function\", \"name\": \"f\"}";
        return Err(wrong(&path, wanted, &tool));
    };
    match given.get("type") {
        Some(Value::String(kind)) if kind == "function" => {}
        None | Some(Value::Null) => return Err(ApiError::missing(&format!("{path}.type"))),
        Some(other) => {
            let message = format!(
                "'{path}.type' must be \"function\"; got {}. This server runs no tools and asks no MCP servers: send \
                 functions, and their outputs as function_call_output.",
                shown(other)
            );
            return Err(ApiError::unsupported(format!("{path}.type"), message));
        }
    }
    let within = |error: ApiError| error.inside(&path);
    let name = field::string(&mut given, "name").map_err(within)?;
    let name = name.filter(|name| !name.trim().is_empty());
    let name = name.ok_or_else(|| ApiError::missing(&format!("{path}.name")))?;
    let description = field::string(&mut given, "description").map_err(within)?;
    let parameters = field::object(&mut given, "parameters").map_err(within)?;
    let strict = field::boolean(&mut given, "strict").map_err(within)?;
    let show = json!({
        "type": "function", "name": name, "description": description, "parameters": parameters,
        "strict": strict.unwrap_or(false),
    });
    let mut function = Map::new();
    function.insert("name".to_owned(), Value::String(name));
    let rest = [
        ("description", description.map(Value::String)),
        ("parameters", parameters.map(Value::Object)),
        ("strict", strict.map(Value::Bool)),
    ];
    for (name, value) in rest {
        if let Some(value) = value {
            function.insert(name.to_owned(), value);
        }
    }
    Ok((json!({"type": "function", "function": function}), show))
}

/// Reads which calls are wanted; `allowed_tools` leaves only those among the tools.
fn read(given: &Value, tools: &mut Vec<Value>) -> Result<ToolChoice, ApiError> {
    const WANTED: &str = "\"none\", \"auto\", \"required\", {\"type\": \"function\", \"name\": \"...\"} or \
                          {\"type\": \"allowed_tools\", ...}";
    let word = |word: &str| match word {
        "none" => Some(ToolChoice::None),
        "auto" => Some(ToolChoice::Auto),
        "required" => Some(ToolChoice::Required),
        _ => None,
    };
    let refused = || wrong("tool_choice", WANTED, given);
    if let Value::String(text) = given {
        return word(text).ok_or_else(refused);
    }
    match given["type"].as_str() {
        Some("function") => {
            let name = given["name"].as_str();
            let name = name.ok_or_else(|| ApiError::missing("tool_choice.name"))?;
            known(name, tools, "tool_choice.name")?;
            Ok(ToolChoice::Named(name.to_owned()))
        }
        Some("allowed_tools") => {
            let mode = given["mode"].as_str().filter(|mode| *mode != "none");
            let choice = mode.and_then(word).ok_or_else(|| {
                wrong(
                    "tool_choice.mode",
                    "\"auto\" or \"required\"",
                    &given["mode"],
                )
            })?;
            let Value::Array(allowed) = &given["tools"] else {
                return Err(wrong(
                    "tool_choice.tools",
                    "a list of functions",
                    &given["tools"],
                ));
            };
            let mut names = Vec::new();
            for (index, tool) in allowed.iter().enumerate() {
                let path = format!("tool_choice.tools.{index}.name");
                let name = tool["name"].as_str();
                let name = name.ok_or_else(|| ApiError::missing(&path))?;
                known(name, tools, &path)?;
                names.push(name);
            }
            tools.retain(|tool| name_of(tool).is_some_and(|name| names.contains(&name)));
            Ok(choice)
        }
        Some(kind) if given.is_object() => {
            let kind = shown(&Value::from(kind));
            let message = format!(
                "'tool_choice.type' must be \"function\" or \"allowed_tools\"; got {kind}."
            );
            Err(ApiError::unsupported("tool_choice.type", message))
        }
        _ => Err(refused()),
    }
}

fn name_of(tool: &Value) -> Option<&str> {
    tool.pointer("/function/name")?.as_str()
}

fn known(name: &str, tools: &[Value], path: &str) -> Result<(), ApiError> {
    let names: Vec<&str> = tools.iter().filter_map(name_of).collect();
    if names.contains(&name) {
        return Ok(());
    }
    let message = format!(
        "'{path}' is {}, which 'tools' does not hold; it has {}.",
        shown(&Value::from(name)),
        names[..names.len().min(20)].join(", ")
    );
    Err(ApiError::invalid(path, message))
}
