//! DeepSeek V3.2 and V4. The two share their marks and differ in where a turn of the assistant begins, how tool results
//! come back and what may ask for thought.

use serde_json::Value;

use super::deepseek_text::{V4_HIGH, V4_MAX, V4_TOOLS, V4_TOOLS_END, V32_TOOLS, V32_TOOLS_END};
use super::dumps::spaced;
use super::reopen;
use super::turn::{Turn, functions, turns};
use crate::chat::Conversation;
use crate::error::RenderError;
use crate::{repr, value};

const BOS: &str = "<｜begin▁of▁sentence｜>";
const EOS: &str = "<｜end▁of▁sentence｜>";
const USER: &str = "<｜User｜>";
const ASSISTANT: &str = "<｜Assistant｜>";
const THINK: &str = "<think>";
const THOUGHT: &str = "</think>";

/// Renders for V3.2.
pub(super) fn v32(conversation: &Conversation) -> Result<String, RenderError> {
    let thinks = truth(conversation, "thinking") || truth(conversation, "enable_thinking");
    let turns = turns(&conversation.messages)?;
    let last_user = last(&turns, &["user", "developer"]);
    if thinks && turns.last().is_some_and(|turn| turn.role == "user") {
        let odd = |turn: &&Turn<'_>| !["system", "user", "assistant", "tool"].contains(&turn.role);
        if let Some(turn) = turns.iter().take(last_user.unwrap_or(0)).find(odd) {
            return Err(turn.refuse(&format!(
                "has the role \"{}\", which DeepSeek V3.2 has not while it thinks",
                turn.role
            )));
        }
    }
    let mut out = BOS.to_owned();
    tools(&mut out, conversation, V32_TOOLS, V32_TOOLS_END);
    for (at, turn) in turns.iter().enumerate() {
        let open = |from: bool| if thinks && from { THINK } else { THOUGHT };
        match turn.role {
            "system" => out.push_str(&shown(turn)),
            "user" | "developer" => {
                let head = if turn.role == "user" {
                    ""
                } else {
                    "\n\n# The user's message is: "
                };
                let think = open(Some(at) == last_user);
                out.push_str(&format!("{USER}{head}{}{ASSISTANT}{think}", shown(turn)));
            }
            "assistant" => {
                if thinks && last_user.is_none_or(|last| at > last) {
                    out.push_str(turn.string("reasoning").unwrap_or_default());
                    out.push_str(THOUGHT);
                }
                out.push_str(&shown(turn));
                calls(&mut out, turn, "function_calls")?;
                out.push_str(EOS);
            }
            "tool" => {
                let (order, count) = place(&turns, at)?;
                out.push_str(if order == 1 {
                    "\n\n<function_results>"
                } else {
                    ""
                });
                out.push_str(&format!("\n<result>{}</result>", shown(turn)));
                if order == count {
                    let think = open(last_user.is_none_or(|last| at >= last));
                    out.push_str(&format!("\n</function_results>\n\n{think}"));
                }
            }
            other => {
                return Err(turn.refuse(&format!(
                    "has the role \"{other}\", which DeepSeek V3.2 has not"
                )));
            }
        }
    }
    finish(out, conversation)
}

/// How V4 thinks about a conversation.
struct Thought<'a> {
    /// Whether it thinks at all.
    thinks: bool,
    effort: Option<&'a str>,
    /// Whether thoughts of earlier turns are forgotten; not where there are tools.
    drops: bool,
    /// The last message of the user's; tool results are the user's turns here.
    last_user: Option<usize>,
}

impl<'a> Thought<'a> {
    fn new(conversation: &'a Conversation, turns: &[Turn<'_>]) -> Self {
        let variable = |name: &str| conversation.variables.get(name);
        let named = ["thinking", "enable_thinking"]
            .iter()
            .any(|name| variable(name).is_some());
        let asked = truth(conversation, "thinking") || truth(conversation, "enable_thinking");
        let effort = variable("reasoning_effort").and_then(Value::as_str);
        Self {
            thinks: (asked || !named) && effort != Some("none"),
            effort,
            drops: functions(conversation.tools.as_deref()).is_empty()
                && variable("drop_thinking") != Some(&Value::Bool(false)),
            last_user: last(turns, &["user", "developer", "tool"]),
        }
    }

    /// Messages of roles that are not its own are forgotten with the thoughts.
    fn forgets(&self, at: usize, turn: &Turn<'_>) -> bool {
        let known = ["system", "user", "assistant", "tool"].contains(&turn.role);
        !known && self.thinks && self.drops && self.last_user.is_some_and(|last| at < last)
    }

    /// Whether what is thought at a message stays; `beyond` it if the message is the assistant's.
    fn stays(&self, at: usize, beyond: bool) -> bool {
        let late = self
            .last_user
            .is_none_or(|last| at > last || (at == last && !beyond));
        self.thinks && (!self.drops || late)
    }

    fn asks(&self) -> &'static str {
        match self.effort {
            Some("max") => V4_MAX,
            Some("low" | "minimal" | "medium") => "",
            _ => V4_HIGH,
        }
    }
}

/// Renders for V4.
pub(super) fn v4(conversation: &Conversation) -> Result<String, RenderError> {
    let all = turns(&conversation.messages)?;
    let thought = Thought::new(conversation, &all);
    let turns: Vec<(usize, &Turn<'_>)> = all
        .iter()
        .enumerate()
        .filter(|(at, turn)| !thought.forgets(*at, turn))
        .collect();
    let mut out = BOS.to_owned();
    if thought.thinks && !turns.is_empty() {
        out.push_str(thought.asks());
    }
    tools(&mut out, conversation, V4_TOOLS, V4_TOOLS_END);
    for (place, (at, turn)) in turns.iter().enumerate() {
        match turn.role {
            "system" => out.push_str(&plain(turn)?),
            "user" | "developer" | "tool" => {
                let follows = place
                    .checked_sub(1)
                    .is_some_and(|before| is_user(turns[before].1.role));
                out.push_str(if follows { "\n\n" } else { USER });
                match turn.role {
                    "tool" => out.push_str(&format!(
                        "<tool_result>{}</tool_result>",
                        turn.text("\n\n")?
                    )),
                    _ => out.push_str(&plain(turn)?),
                }
                // The assistant's turn begins where the user's ends.
                if turns
                    .get(place + 1)
                    .is_none_or(|(_, next)| next.role == "assistant")
                {
                    out.push_str(ASSISTANT);
                    out.push_str(if thought.stays(*at, false) {
                        THINK
                    } else {
                        THOUGHT
                    });
                }
            }
            "assistant" => {
                if thought.stays(*at, true) {
                    out.push_str(turn.string("reasoning").unwrap_or_default());
                    out.push_str(THOUGHT);
                }
                out.push_str(&plain(turn)?);
                calls(&mut out, turn, "tool_calls")?;
                out.push_str(EOS);
            }
            other => {
                return Err(turn.refuse(&format!(
                    "has the role \"{other}\", which DeepSeek V4 has not"
                )));
            }
        }
    }
    finish(out, conversation)
}

fn is_user(role: &str) -> bool {
    ["user", "developer", "tool"].contains(&role)
}

fn finish(out: String, conversation: &Conversation) -> Result<String, RenderError> {
    match conversation.continue_final_message {
        true => reopen(out, EOS),
        false => Ok(out),
    }
}

/// Whether a variable is set and true, as Python sees it.
fn truth(conversation: &Conversation, name: &str) -> bool {
    match conversation.variables.get(name) {
        None | Some(Value::Null) => false,
        Some(Value::Bool(flag)) => *flag,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Number(number)) => number.as_f64() != Some(0.0),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(fields)) => !fields.is_empty(),
    }
}

fn last(turns: &[Turn<'_>], roles: &[&str]) -> Option<usize> {
    turns.iter().rposition(|turn| roles.contains(&turn.role))
}

/// The content as V3.2 writes it: anything that is no text as Python prints it.
fn shown(turn: &Turn<'_>) -> String {
    let mut text = String::new();
    if let Some(content) = turn.get("content") {
        repr::str(&mut text, &value::from_json(content));
    }
    text
}

/// The content as V4 takes it: text alone.
fn plain(turn: &Turn<'_>) -> Result<String, RenderError> {
    match turn.get("content") {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(turn.refuse("has a content that is no text")),
    }
}

fn tools(out: &mut String, conversation: &Conversation, head: &str, end: &str) {
    let functions = functions(conversation.tools.as_deref());
    if functions.is_empty() {
        return;
    }
    out.push_str("\n\n");
    out.push_str(head);
    let schemas: Vec<String> = functions
        .into_iter()
        .map(|function| spaced(&Value::Object(function.clone())))
        .collect();
    out.push_str(&schemas.join("\n"));
    out.push('\n');
    out.push_str(end);
}

fn calls(out: &mut String, turn: &Turn<'_>, block: &str) -> Result<(), RenderError> {
    let calls = turn.calls()?;
    if calls.is_empty() {
        return Ok(());
    }
    out.push_str(&format!("\n\n<｜DSML｜{block}>\n"));
    for call in calls {
        out.push_str(&format!("<｜DSML｜invoke name=\"{}\">\n", call.name));
        let arguments = turn.object(call)?;
        let parameters: Vec<String> = arguments
            .iter()
            .map(|(key, value)| {
                let (is_text, text) = value.as_str().map_or_else(|| (false, spaced(value)), |text| (true, text.to_owned()));
                format!("<｜DSML｜parameter name=\"{key}\" string=\"{is_text}\">{text}</｜DSML｜parameter>")
            })
            .collect();
        out.push_str(&parameters.join("\n"));
        out.push_str("\n</｜DSML｜invoke>\n");
    }
    out.push_str(&format!("</｜DSML｜{block}>"));
    Ok(())
}

/// Which of how many results of the calls before it a tool's message is.
fn place(turns: &[Turn<'_>], at: usize) -> Result<(usize, usize), RenderError> {
    let before = turns[..at].iter().rposition(|turn| turn.role != "tool");
    let caller = before.filter(|before| turns[*before].role == "assistant");
    let caller = caller.ok_or_else(|| {
        turns[at].refuse(
            "is a tool's result, and no assistant's message with tool_calls comes before it",
        )
    })?;
    let count = turns[caller].calls()?.len();
    if at - caller > count {
        return Err(turns[at].refuse(&format!(
            "is a tool's result too many: {count} tools were called"
        )));
    }
    Ok((at - caller, count))
}
