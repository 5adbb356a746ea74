//! Kimi K3: messages, thoughts, answers and calls stand between tags that open and close.

use serde_json::Value;

use super::Piece;
use super::dumps::{sorted, spaced};
use super::pieces::Pieces;
use super::turn::{Call, Turn, turns};
use crate::chat::Conversation;
use crate::error::RenderError;
use crate::{repr, value};

const END: &str = "<|end_of_msg|>";

const DECLARED: &str =
    "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n";
const ADDED: &str = "## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\nYou have access to all existing and extended tools.\nHere are the specs for the extended tools.\n\n```json\n";
const EFFORT: &str = "`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), supported values include `low`, `medium`, `high`, and `max`.\nNow the system is invoked with `thinking_effort=";
const RAW_JSON: &str = "Your response must be raw JSON data without markdown code blocks (```json) or any additional formatting.";

pub(super) fn render(conversation: &Conversation) -> Result<Vec<Piece>, RenderError> {
    let turns = turns(&conversation.messages)?;
    let thinks = thinks(conversation);
    let mut out = Pieces::default();
    if let Some(tools) = conversation
        .tools
        .as_ref()
        .filter(|tools| !tools.is_empty())
    {
        declare(&mut out, DECLARED, &Value::Array(tools.clone()));
    }
    if thinks && let Some(effort) = effort(conversation)? {
        instruct(&mut out, "thinking-effort", &format!("{EFFORT}{effort}`."));
    }
    let mut called: Vec<Call<'_>> = Vec::new();
    let mut at = 0;
    while let Some(turn) = turns.get(at) {
        at += 1;
        match turn.role {
            "system"
                if turn
                    .get("tools")
                    .is_some_and(|tools| tools != &Value::Array(Vec::new())) =>
            {
                declare(&mut out, ADDED, turn.get("tools").unwrap_or(&Value::Null));
            }
            "user" | "system" => message(&mut out, turn, |out| content(out, turn))?,
            "assistant" => {
                called = turn.calls()?;
                message(&mut out, turn, |out| assistant(out, turn, thinks, &called))?;
            }
            "tool" => {
                let run = turns[at..]
                    .iter()
                    .take_while(|turn| turn.role == "tool")
                    .count();
                results(&mut out, &turns[at - 1..at + run], &called)?;
                at += run;
            }
            // Other roles are passed over, as the model's own code does.
            _ => {}
        }
    }
    if conversation.continue_final_message {
        return out.reopen(&[
            "<|close|>",
            "response",
            "<|sep|>",
            "<|close|>",
            "message",
            "<|sep|>",
            END,
        ]);
    }
    ending(&mut out, conversation, thinks);
    Ok(out.done())
}

/// What the system adds behind the messages, and the head of the assistant's turn.
fn ending(out: &mut Pieces, conversation: &Conversation, thinks: bool) {
    choice(out, conversation);
    response_format(out, conversation);
    if conversation.add_generation_prompt {
        open(out, "message", &[("role", "assistant")]);
        open(out, if thinks { "think" } else { "response" }, &[]);
    }
}

fn thinks(conversation: &Conversation) -> bool {
    match conversation.variables.get("thinking") {
        None => true,
        Some(Value::Bool(flag)) => *flag,
        Some(other) => !other.is_null(),
    }
}

/// How much to think: `thinking_effort`; `None` where it is null.
fn effort(conversation: &Conversation) -> Result<Option<&'static str>, RenderError> {
    let given = conversation.variables.get("thinking_effort");
    match given {
        None => Ok(Some("max")),
        Some(Value::Null) => Ok(None),
        Some(value) => match value.as_str() {
            Some("low") => Ok(Some("low")),
            Some("high") => Ok(Some("high")),
            Some("max") => Ok(Some("max")),
            _ => Err(RenderError::Refused(format!(
                "Unsupported thinking_effort={}; supported values are low, high, and max.",
                value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned)
            ))),
        },
    }
}

fn open(out: &mut Pieces, tag: &str, attributes: &[(&str, &str)]) {
    out.special("<|open|>");
    out.text(tag);
    for (name, value) in attributes {
        // Each part is tokenized by itself.
        out.text(format!(" {name}"));
        out.text("=\"");
        out.text(value.replace('&', "&amp;").replace('"', "&quot;"));
        out.text("\"");
    }
    out.special("<|sep|>");
}

fn close(out: &mut Pieces, tag: &str) {
    out.special("<|close|>");
    out.text(tag);
    out.special("<|sep|>");
}

fn message(
    out: &mut Pieces,
    turn: &Turn<'_>,
    write: impl FnOnce(&mut Pieces) -> Result<(), RenderError>,
) -> Result<(), RenderError> {
    let mut attributes = vec![("role", turn.role)];
    attributes.extend(
        turn.string("name")
            .filter(|name| !name.is_empty())
            .map(|name| ("name", name)),
    );
    open(out, "message", &attributes);
    write(out)?;
    close(out, "message");
    out.special(END);
    Ok(())
}

/// A message of the system's own.
fn instruct(out: &mut Pieces, kind: &str, body: &str) {
    open(out, "message", &[("role", "system"), ("type", kind)]);
    out.text(body.trim());
    close(out, "message");
    out.special(END);
}

fn declare(out: &mut Pieces, head: &str, tools: &Value) {
    open(
        out,
        "message",
        &[("role", "system"), ("type", "tool-declare")],
    );
    out.text(format!("{head}{}\n```", sorted(tools)));
    close(out, "message");
    out.special(END);
}

fn content(out: &mut Pieces, turn: &Turn<'_>) -> Result<(), RenderError> {
    let Some(Value::Array(parts)) = turn.get("content") else {
        out.text(turn.text("")?);
        return Ok(());
    };
    for part in parts {
        match part.get("type").and_then(Value::as_str) {
            Some("image" | "image_url") => out.special("<|kimi_image_placeholder|>"),
            // A part without text is written as the empty text that it is to the model's own code.
            _ => out.text(part.get("text").and_then(Value::as_str).unwrap_or_default()),
        }
    }
    Ok(())
}

fn assistant(
    out: &mut Pieces,
    turn: &Turn<'_>,
    thinks: bool,
    called: &[Call<'_>],
) -> Result<(), RenderError> {
    if thinks {
        let thought = ["reasoning_content", "reasoning"]
            .iter()
            .find_map(|name| turn.string(name).filter(|text| !text.is_empty()));
        open(out, "think", &[]);
        out.text(
            thought
                .filter(|text| !text.trim().is_empty())
                .unwrap_or_default(),
        );
        close(out, "think");
    }
    open(out, "response", &[]);
    content(out, turn)?;
    close(out, "response");
    if called.is_empty() {
        return Ok(());
    }
    open(out, "tools", &[]);
    for (index, call) in called.iter().enumerate() {
        open(
            out,
            "call",
            &[("tool", call.name), ("index", &(index + 1).to_string())],
        );
        arguments(out, turn, call)?;
        close(out, "call");
    }
    close(out, "tools");
    Ok(())
}

fn arguments(out: &mut Pieces, turn: &Turn<'_>, call: &Call<'_>) -> Result<(), RenderError> {
    // Text that is no JSON at all is passed on as it is.
    let broken = call.arguments.and_then(Value::as_str).filter(|text| {
        !text.trim().is_empty() && serde_json::from_str::<serde::de::IgnoredAny>(text).is_err()
    });
    if let Some(text) = broken {
        open(out, "json", &[("type", "object")]);
        out.text(text);
        close(out, "json");
        return Ok(());
    }
    for (key, value) in turn.object(*call)? {
        let (kind, text) = typed(&value);
        open(out, "argument", &[("key", &key), ("type", kind)]);
        out.text(text);
        close(out, "argument");
    }
    Ok(())
}

fn typed(value: &Value) -> (&'static str, String) {
    match value {
        Value::String(text) => ("string", text.clone()),
        Value::Bool(_) => ("boolean", spaced(value)),
        Value::Null => ("null", spaced(value)),
        Value::Number(_) => ("number", spaced(value)),
        Value::Object(_) => ("object", spaced(value)),
        Value::Array(_) => ("array", spaced(value)),
    }
}

/// The id of the call that a result answers.
fn answers(turn: &Turn<'_>) -> Option<String> {
    let id = turn
        .fields
        .get("tool_call_id")
        .or_else(|| turn.fields.get("id"))?;
    (!id.is_null()).then(|| {
        let mut text = String::new();
        repr::str(&mut text, &value::from_json(id));
        text
    })
}

/// Results of one round of calls: in the order of the calls where each names its call, else as they come.
fn results(out: &mut Pieces, run: &[Turn<'_>], called: &[Call<'_>]) -> Result<(), RenderError> {
    let known = |turn: &Turn<'_>| {
        answers(turn).is_some_and(|id| called.iter().any(|call| call.id == Some(&id)))
    };
    let mut index = 0;
    if !run.iter().all(known) {
        for turn in run {
            index += 1;
            result(out, turn, index, None, called)?;
        }
        return Ok(());
    }
    let mut done: Vec<&str> = Vec::new();
    for call in called {
        let Some(id) = call.id.filter(|id| !done.contains(id)) else {
            continue;
        };
        done.push(id);
        for turn in run
            .iter()
            .filter(|turn| answers(turn).as_deref() == Some(id))
        {
            index += 1;
            result(out, turn, index, Some(call.name), called)?;
        }
    }
    Ok(())
}

fn result(
    out: &mut Pieces,
    turn: &Turn<'_>,
    index: usize,
    name: Option<&str>,
    called: &[Call<'_>],
) -> Result<(), RenderError> {
    let own = if turn.fields.contains_key("tool") {
        "tool"
    } else {
        "name"
    };
    let name = name
        .or_else(|| turn.string(own))
        .or_else(|| called.get(index - 1).map(|call| call.name));
    let name = name.ok_or_else(|| {
        turn.refuse("is a tool's result that names no tool and follows no call of one")
    })?;
    open(
        out,
        "message",
        &[
            ("role", "tool"),
            ("tool", name),
            ("index", &index.to_string()),
        ],
    );
    content(out, turn)?;
    close(out, "message");
    out.special(END);
    Ok(())
}

fn choice(out: &mut Pieces, conversation: &Conversation) {
    let (choice, must) = match conversation
        .variables
        .get("tool_choice")
        .and_then(Value::as_str)
    {
        Some("required") => ("required", "You MUST call tools in the next message."),
        Some("none") => ("none", "You MUST NOT call any tools in the next message."),
        _ => return,
    };
    instruct(
        out,
        "tool-choice",
        &format!("The system is invoked with `tool_choice={choice}`.\n{must}"),
    );
}

fn response_format(out: &mut Pieces, conversation: &Conversation) {
    let Some(format) = conversation.variables.get("response_format") else {
        return;
    };
    let kind = if format.is_object() {
        format.get("type")
    } else {
        Some(format)
    };
    match kind.and_then(Value::as_str) {
        Some("json_object") => {
            let body =
                format!("The system is invoked with `response_format=json_object`.\n{RAW_JSON}");
            instruct(out, "response-format", &body);
        }
        Some("json_schema") => {
            let wrapper = format.get("json_schema");
            let inner = wrapper.map(|wrapper| {
                wrapper
                    .get("schema")
                    .or_else(|| wrapper.get("json_schema"))
                    .unwrap_or(wrapper)
            });
            let schema = conversation
                .variables
                .get("response_schema")
                .or(inner)
                .unwrap_or(&Value::Null);
            let body = format!(
                "The system is invoked with `response_format=json_schema`.\n{RAW_JSON}\nThe JSON data must match the following schema:\n```json\n{}\n```",
                sorted(schema)
            );
            instruct(out, "response-format", &body);
        }
        _ => {}
    }
}
