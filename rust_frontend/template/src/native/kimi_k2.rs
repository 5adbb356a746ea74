//! Kimi K2.5, whose tools are TypeScript declarations.

use serde_json::Value;

use super::dumps::spaced;
use super::kimi_tools;
use super::reopen;
use super::turn::{Turn, turns};
use crate::chat::Conversation;
use crate::error::RenderError;

const END: &str = "<|im_end|>";

pub(super) fn render(conversation: &Conversation) -> Result<String, RenderError> {
    let turns = turns(&conversation.messages)?;
    let thinks = conversation.variables.get("thinking") != Some(&Value::Bool(false));
    let mut out = String::new();
    if let Some(tools) = conversation
        .tools
        .as_deref()
        .filter(|tools| !tools.is_empty())
    {
        let declared = kimi_tools::declare(tools)?;
        out.push_str(&format!(
            "<|im_system|>tool_declare<|im_middle|>{declared}{END}"
        ));
    }
    // Thoughts before the last answer that called no tool are forgotten.
    let answered = turns
        .iter()
        .rposition(|turn| turn.role == "assistant" && !has_calls(turn));
    for (at, turn) in turns.iter().enumerate() {
        head(&mut out, turn);
        let forgotten = answered.is_some_and(|answered| at <= answered);
        match turn.role {
            "assistant" => {
                let thought = turn
                    .string("reasoning_content")
                    .or_else(|| turn.string("reasoning"));
                let thought = thought.filter(|_| thinks && !forgotten).unwrap_or_default();
                out.push_str(&format!("<think>{thought}</think>"));
                content(&mut out, turn)?;
                calls(&mut out, turn)?;
            }
            "tool" => {
                let id = turn.string("tool_call_id").unwrap_or_default();
                out.push_str(&format!("## Return of {id}\n"));
                content(&mut out, turn)?;
            }
            _ => content(&mut out, turn)?,
        }
        out.push_str(END);
    }
    if conversation.continue_final_message {
        return reopen(out, END);
    }
    if conversation.add_generation_prompt {
        out.push_str("<|im_assistant|>assistant<|im_middle|>");
        out.push_str(if thinks { "<think>" } else { "<think></think>" });
    }
    Ok(out)
}

fn has_calls(turn: &Turn<'_>) -> bool {
    turn.get("tool_calls")
        .and_then(Value::as_array)
        .is_some_and(|calls| !calls.is_empty())
}

fn head(out: &mut String, turn: &Turn<'_>) {
    let mark = match turn.role {
        "user" => "<|im_user|>",
        "assistant" => "<|im_assistant|>",
        _ => "<|im_system|>",
    };
    let name = turn
        .string("name")
        .filter(|name| !name.is_empty())
        .unwrap_or(turn.role);
    out.push_str(&format!("{mark}{name}<|im_middle|>"));
}

fn content(out: &mut String, turn: &Turn<'_>) -> Result<(), RenderError> {
    out.push_str(&turn.text("")?);
    Ok(())
}

fn calls(out: &mut String, turn: &Turn<'_>) -> Result<(), RenderError> {
    let calls = turn.calls()?;
    if calls.is_empty() {
        return Ok(());
    }
    out.push_str("<|tool_calls_section_begin|>");
    for call in calls {
        let arguments = match call.arguments {
            Some(Value::String(text)) => text.clone(),
            Some(other) => spaced(other),
            None => "{}".to_owned(),
        };
        let id = call.id.unwrap_or_default();
        out.push_str(&format!(
            "<|tool_call_begin|>{id}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"
        ));
    }
    out.push_str("<|tool_calls_section_end|>");
    Ok(())
}
