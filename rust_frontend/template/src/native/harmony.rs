//! Harmony, the format of gpt-oss: messages with channels and recipients.

use serde_json::{Map, Value};

use super::Piece;
use super::dumps::spaced;
use super::harmony_tools;
use super::pieces::Pieces;
use super::turn::{Turn, functions, turns};
use crate::chat::Conversation;
use crate::clock::Clock;
use crate::error::RenderError;

const IDENTITY: &str = "You are ChatGPT, a large language model trained by OpenAI.";

/// One message as it is written.
#[derive(Default)]
struct Message {
    author: String,
    recipient: Option<String>,
    channel: Option<&'static str>,
    /// Whether the content is JSON that the model was held to.
    json: bool,
    content: String,
    /// Whether it ends with a call.
    call: bool,
}

impl Message {
    fn plain(author: &str, content: String) -> Self {
        Self {
            author: author.to_owned(),
            content,
            ..Self::default()
        }
    }

    fn assistant(channel: &'static str, content: String) -> Self {
        Self {
            channel: Some(channel),
            ..Self::plain("assistant", content)
        }
    }

    fn write(self, out: &mut Pieces) {
        out.special("<|start|>");
        out.text(self.author);
        if let Some(recipient) = self.recipient {
            out.text(format!(" to={recipient}"));
        }
        if let Some(channel) = self.channel {
            out.special("<|channel|>");
            out.text(channel);
        }
        if self.json {
            out.text(" ");
            out.special("<|constrain|>");
            out.text("json");
        }
        out.special("<|message|>");
        out.text(self.content);
        out.special(if self.call { "<|call|>" } else { "<|end|>" });
    }
}

pub(super) fn render(
    conversation: &Conversation,
    clock: &Clock,
) -> Result<Vec<Piece>, RenderError> {
    let turns = turns(&conversation.messages)?;
    let tools = functions(conversation.tools.as_deref());
    let mut messages = vec![Message::plain(
        "system",
        system(conversation, clock, !tools.is_empty())?,
    )];
    let leads = turns.first().is_some_and(|turn| is_instruction(turn));
    let (first, rest) = turns.split_at(usize::from(leads));
    let instructions = first.first().map(|turn| turn.text("\n")).transpose()?;
    if instructions.is_some() || !tools.is_empty() {
        messages.push(Message::plain("developer", developer(instructions, &tools)));
    }
    for (at, turn) in rest.iter().enumerate() {
        match turn.role {
            "system" | "developer" => {
                messages.push(Message::plain(
                    "developer",
                    developer(Some(turn.text("\n")?), &[]),
                ));
            }
            "user" => messages.push(Message::plain("user", turn.text("\n")?)),
            "assistant" => assistant(&mut messages, turn)?,
            "tool" => messages.push(result(&rest[..at], turn)?),
            other => {
                return Err(
                    turn.refuse(&format!("has the role \"{other}\", which Harmony has not"))
                );
            }
        }
    }
    let mut out = Pieces::default();
    forget(&mut messages);
    messages
        .into_iter()
        .for_each(|message| message.write(&mut out));
    if conversation.continue_final_message {
        if turns.last().is_none_or(|turn| turn.role != "assistant") {
            return Err(RenderError::Continuation(
                "it is not the assistant's".to_owned(),
            ));
        }
        return out.reopen(&["<|end|>"]);
    }
    if conversation.add_generation_prompt {
        out.special("<|start|>");
        out.text("assistant");
    }
    Ok(out.done())
}

fn is_instruction(turn: &Turn<'_>) -> bool {
    ["system", "developer"].contains(&turn.role)
}

/// What the model is told about itself.
fn system(conversation: &Conversation, clock: &Clock, tools: bool) -> Result<String, RenderError> {
    let variable = |name: &str| conversation.variables.get(name).and_then(Value::as_str);
    let date = clock.format("%Y-%m-%d").map_err(RenderError::Failed)?;
    let effort = match variable("reasoning_effort") {
        None => "medium",
        Some(effort @ ("low" | "medium" | "high")) => effort,
        Some(other) => {
            return Err(RenderError::Refused(format!(
                "reasoning_effort must be low, medium or high for this model; got {other}."
            )));
        }
    };
    let identity = variable("model_identity").unwrap_or(IDENTITY);
    let calls = match tools {
        true => "\nCalls to these tools must go to the commentary channel: 'functions'.",
        false => "",
    };
    Ok(format!(
        "{identity}\nKnowledge cutoff: 2024-06\nCurrent date: {date}\n\nReasoning: {effort}\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message.{calls}"
    ))
}

fn developer(instructions: Option<String>, tools: &[&Map<String, Value>]) -> String {
    let mut sections = Vec::new();
    if let Some(instructions) = instructions {
        sections.push(format!("# Instructions\n\n{instructions}"));
    }
    if !tools.is_empty() {
        sections.push(harmony_tools::declare(tools));
    }
    sections.join("\n\n")
}

/// Thoughts, then what was said, then the calls: an answer with calls is a preamble to them.
fn assistant(messages: &mut Vec<Message>, turn: &Turn<'_>) -> Result<(), RenderError> {
    let thought = ["reasoning", "reasoning_content", "thinking"]
        .iter()
        .find_map(|name| turn.string(name));
    if let Some(thought) = thought.filter(|thought| !thought.is_empty()) {
        messages.push(Message::assistant("analysis", thought.to_owned()));
    }
    let calls = turn.calls()?;
    let text = turn.text("\n")?;
    if calls.is_empty() {
        messages.push(Message::assistant("final", text));
    } else if !text.is_empty() {
        messages.push(Message::assistant("commentary", text));
    }
    for call in calls {
        let content = match call.arguments {
            Some(Value::String(text)) => text.clone(),
            Some(other) => spaced(other),
            None => "{}".to_owned(),
        };
        messages.push(Message {
            recipient: Some(format!("functions.{}", call.name)),
            json: true,
            call: true,
            ..Message::assistant("commentary", content)
        });
    }
    Ok(())
}

/// A tool's result, under the name that the message or the call of its id gives.
fn result(before: &[Turn<'_>], turn: &Turn<'_>) -> Result<Message, RenderError> {
    let id = turn.string("tool_call_id");
    let mut name = turn.string("name").map(str::to_owned);
    for earlier in before
        .iter()
        .rev()
        .filter(|earlier| earlier.role == "assistant")
    {
        if name.is_some() || id.is_none() {
            break;
        }
        name = earlier
            .calls()?
            .iter()
            .find(|call| call.id == id)
            .map(|call| call.name.to_owned());
    }
    let name = name
        .ok_or_else(|| turn.refuse("is a tool's result that names no tool and answers no call"))?;
    Ok(Message {
        recipient: Some("assistant".to_owned()),
        channel: Some("commentary"),
        ..Message::plain(&format!("functions.{name}"), turn.text("\n")?)
    })
}

/// Once the assistant has given its answer, thoughts before the first answer go.
fn forget(messages: &mut Vec<Message>) {
    let answered = messages
        .iter()
        .rfind(|message| message.author == "assistant");
    if answered.is_none_or(|message| message.channel != Some("final")) {
        return;
    }
    let first = messages
        .iter()
        .position(|message| message.channel == Some("final"))
        .unwrap_or(0);
    let mut index = 0;
    messages.retain(|message| {
        index += 1;
        index > first || message.channel != Some("analysis")
    });
}
