//! Mistral's prompts for tekken vocabularies, versions 3, 7, 11 and 13.
//!
//! What differs: 3 puts the system's words before the last user's and wraps results as JSON; 7 has marks for both; 11
//! writes each call by its name, id and arguments; 13 leaves ids out and tells the tools at the first user's turn.

use serde_json::{Map, Value, json};

use super::Piece;
use super::dumps::spaced;
use super::pieces::Pieces;
use super::turn::{Call, Turn, functions, turns};
use crate::chat::Conversation;
use crate::error::RenderError;

/// A message, or several of one role that stand together.
enum Block<'a> {
    System(String),
    User(String),
    Assistant {
        text: String,
        calls: Vec<(Turn<'a>, Call<'a>)>,
    },
    Tool(Turn<'a>),
}

const JOIN: &str = "\n\n";

pub(super) fn render(conversation: &Conversation, version: u32) -> Result<Vec<Piece>, RenderError> {
    let turns = turns(&conversation.messages)?;
    let tools = functions(conversation.tools.as_deref());
    let blocks = blocks(&turns, version)?;
    let users = || {
        blocks
            .iter()
            .enumerate()
            .filter(|(_, block)| matches!(block, Block::User(_)))
            .map(|(at, _)| at)
    };
    let last_user = users().next_back();
    let told = if version >= 13 {
        users().next()
    } else {
        last_user
    };
    let system = match version {
        3 => systems(&turns)?,
        _ => String::new(),
    };
    let mut out = Pieces::default();
    out.special("<s>");
    for (at, block) in blocks.iter().enumerate() {
        match block {
            Block::System(text) => {
                out.special("[SYSTEM_PROMPT]");
                out.text(text.as_str());
                out.special("[/SYSTEM_PROMPT]");
            }
            Block::User(text) => {
                if told == Some(at) && !tools.is_empty() {
                    out.special("[AVAILABLE_TOOLS]");
                    out.text(spaced(&Value::Array(
                        tools.iter().map(|tool| declared(tool)).collect(),
                    )));
                    out.special("[/AVAILABLE_TOOLS]");
                }
                out.special("[INST]");
                let before = !system.is_empty() && last_user == Some(at);
                out.text(if before {
                    format!("{system}{JOIN}{text}")
                } else {
                    text.clone()
                });
                out.special("[/INST]");
            }
            Block::Assistant { text, calls } => assistant(&mut out, text, calls, version)?,
            Block::Tool(turn) => result(&mut out, turn, version)?,
        }
    }
    match conversation.continue_final_message {
        true => out.reopen(&["</s>"]),
        false => Ok(out.done()),
    }
}

fn systems(turns: &[Turn<'_>]) -> Result<String, RenderError> {
    let texts = turns
        .iter()
        .filter(|turn| turn.role == "system")
        .map(|turn| turn.text(JOIN));
    let texts: Vec<String> = texts.collect::<Result<_, _>>()?;
    Ok(texts
        .into_iter()
        .filter(|text| !text.is_empty())
        .collect::<Vec<_>>()
        .join(JOIN))
}

/// Puts messages of one role that stand together into one.
fn blocks<'a>(turns: &[Turn<'a>], version: u32) -> Result<Vec<Block<'a>>, RenderError> {
    let mut blocks: Vec<Block<'a>> = Vec::new();
    let mut before = "";
    for turn in turns {
        let joins = before == turn.role;
        before = turn.role;
        let text = turn.text(JOIN)?;
        match (turn.role, blocks.last_mut().filter(|_| joins)) {
            ("system", _) if version == 3 => {}
            ("system", _) => blocks.push(Block::System(text)),
            ("user", Some(Block::User(whole))) => join(whole, &text),
            ("user", _) => blocks.push(Block::User(text)),
            ("assistant", Some(Block::Assistant { text: whole, calls })) => {
                join(whole, &text);
                calls.extend(turn.calls()?.into_iter().map(|call| (*turn, call)));
            }
            ("assistant", _) => {
                let calls = turn
                    .calls()?
                    .into_iter()
                    .map(|call| (*turn, call))
                    .collect();
                blocks.push(Block::Assistant { text, calls });
            }
            ("tool", _) => blocks.push(Block::Tool(*turn)),
            (other, _) => {
                return Err(turn.refuse(&format!(
                    "has the role \"{other}\", which this model has not"
                )));
            }
        }
    }
    if version >= 11 {
        sort_results(&mut blocks);
    }
    let begins = matches!(blocks.first(), Some(Block::User(_)));
    if blocks.is_empty() || (version == 3 && !begins) {
        blocks.insert(0, Block::User(String::new()));
    }
    Ok(blocks)
}

fn join(whole: &mut String, text: &str) {
    if !whole.is_empty() && !text.is_empty() {
        whole.push_str(JOIN);
    }
    whole.push_str(text);
}

/// Puts each run of results into the order of the calls before it.
fn sort_results(blocks: &mut [Block<'_>]) {
    let mut ids: Vec<String> = Vec::new();
    let mut start = 0;
    while start < blocks.len() {
        let run = blocks[start..]
            .iter()
            .take_while(|block| matches!(block, Block::Tool(_)))
            .count();
        if run == 0 {
            if let Block::Assistant { calls, .. } = &blocks[start] {
                ids = calls
                    .iter()
                    .filter_map(|(_, call)| call.id.map(str::to_owned))
                    .collect();
            }
            start += 1;
            continue;
        }
        blocks[start..start + run].sort_by_key(|block| match block {
            Block::Tool(turn) => {
                let id = turn.string("tool_call_id");
                ids.iter()
                    .position(|known| Some(known.as_str()) == id)
                    .unwrap_or(usize::MAX)
            }
            _ => usize::MAX,
        });
        ids.clear();
        start += run;
    }
}

/// A tool with the fields that the model was trained on.
fn declared(function: &Map<String, Value>) -> Value {
    let field = |name: &str, default: Value| {
        function
            .get(name)
            .filter(|value| !value.is_null())
            .cloned()
            .unwrap_or(default)
    };
    json!({"type": "function", "function": {
        "name": field("name", json!("")),
        "description": field("description", json!("")),
        "parameters": field("parameters", json!({})),
    }})
}

fn assistant(
    out: &mut Pieces,
    text: &str,
    calls: &[(Turn<'_>, Call<'_>)],
    version: u32,
) -> Result<(), RenderError> {
    if version == 3
        && !text.is_empty()
        && let Some((turn, _)) = calls.first()
    {
        return Err(turn.refuse("has text and tool calls, and this model has either"));
    }
    if text.is_empty() && calls.is_empty() {
        return Err(RenderError::Refused(
            "An assistant's message has neither content nor tool_calls.".to_owned(),
        ));
    }
    out.text(text.trim_end_matches(' '));
    if version < 11 && !calls.is_empty() {
        out.special("[TOOL_CALLS]");
        let calls: Vec<Value> = calls
            .iter()
            .map(|(turn, call)| {
                let mut fields = Map::new();
                fields.insert("name".to_owned(), json!(call.name));
                fields.insert("arguments".to_owned(), arguments(turn, call)?);
                if let Some(id) = call.id.filter(|id| !id.is_empty() && *id != "null") {
                    fields.insert("id".to_owned(), json!(id));
                }
                Ok(Value::Object(fields))
            })
            .collect::<Result<_, RenderError>>()?;
        out.text(spaced(&Value::Array(calls)));
    }
    for (turn, call) in calls.iter().filter(|_| version >= 11) {
        out.special("[TOOL_CALLS]");
        out.text(call.name);
        if let Some(id) = call
            .id
            .filter(|id| version < 13 && !id.is_empty() && *id != "null")
        {
            out.special("[CALL_ID]");
            out.text(id);
        }
        out.special("[ARGS]");
        out.text(spaced(&arguments(turn, call)?));
    }
    out.special("</s>");
    Ok(())
}

/// Arguments as JSON; text that is none is a JSON text.
fn arguments(turn: &Turn<'_>, call: &Call<'_>) -> Result<Value, RenderError> {
    match call.arguments {
        Some(Value::String(text)) if !text.trim().is_empty() => {
            Ok(serde_json::from_str(text).unwrap_or_else(|_| json!(text)))
        }
        _ => turn.object(*call).map(Value::Object),
    }
}

fn result(out: &mut Pieces, turn: &Turn<'_>, version: u32) -> Result<(), RenderError> {
    let id = turn.string("tool_call_id");
    let id = id.ok_or_else(|| {
        turn.refuse("is a tool's result without a tool_call_id, which this model needs")
    })?;
    let text = turn.text(JOIN)?;
    out.special("[TOOL_RESULTS]");
    match version {
        3 => {
            let content = if text.is_empty() {
                json!({})
            } else {
                serde_json::from_str(&text).unwrap_or_else(|_| json!(text))
            };
            out.text(spaced(&json!({"content": content, "call_id": id})));
        }
        7 | 11 => {
            out.text(id);
            out.special("[TOOL_CONTENT]");
            out.text(text);
        }
        _ => out.text(text),
    }
    out.special("[/TOOL_RESULTS]");
    Ok(())
}
