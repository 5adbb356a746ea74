//! A conversation, as fields of a body.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use octavo_api::ApiError;
use serde_json::{Value, json};

use crate::fields::{Fields, parsed};
use crate::proto::content_part::Part;
use crate::proto::media_item::Source;
use crate::proto::{ContentPart, Conversation, MediaItem, Message, Modality, Tool, ToolCall};

/// Fields of bodies that are made of `conversation`.
pub(crate) const FIELDS: &[&str] = &[
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template_kwargs",
    "documents",
    "reasoning_effort",
    "include_reasoning",
    "chat_template",
];

/// Adds the fields that are set.
///
/// # Errors
/// 400 for JSON that is none.
pub(crate) fn add(fields: &mut Fields, given: Conversation) -> Result<(), ApiError> {
    let messages: Vec<Value> = given.messages.into_iter().map(message).collect();
    fields.put("messages", Some(messages));
    let tools = given.tools.into_iter().enumerate();
    let tools = tools.map(|(index, given)| tool(index, given));
    fields.list("tools", tools.collect::<Result<Vec<Value>, _>>()?);
    match given.tool_choice.as_str() {
        "none" | "auto" | "required" | "" => fields.text("tool_choice", given.tool_choice),
        name => {
            let choice = json!({"type": "function", "function": {"name": name}});
            fields.put("tool_choice", Some(choice));
        }
    }
    fields.put("parallel_tool_calls", given.parallel_tool_calls);
    fields.put("add_generation_prompt", given.add_generation_prompt);
    fields.put("continue_final_message", given.continue_final_message);
    fields.json(
        "chat_template_kwargs",
        "conversation.chat_template_kwargs_json",
        &given.chat_template_kwargs_json,
    )?;
    fields.json(
        "documents",
        "conversation.documents_json",
        &given.documents_json,
    )?;
    fields.text("reasoning_effort", given.reasoning_effort);
    fields.put("include_reasoning", given.include_reasoning);
    fields.text("chat_template", given.chat_template);
    Ok(())
}

fn message(given: Message) -> Value {
    let mut fields = Fields::default();
    fields.text("role", given.role);
    let mut parts: Vec<Value> = given.content.into_iter().map(part).collect();
    match parts.as_slice() {
        [] => {}
        // Templates know texts best.
        [only] if only["type"] == "text" => {
            let text = parts.swap_remove(0)["text"].take();
            fields.put("content", Some(text));
        }
        _ => fields.put("content", Some(parts)),
    }
    fields.text("name", given.name);
    fields.text("tool_call_id", given.tool_call_id);
    fields.text("reasoning", given.reasoning);
    let calls: Vec<Value> = given.tool_calls.into_iter().map(call).collect();
    fields.list("tool_calls", calls);
    json!(fields.0)
}

fn part(given: ContentPart) -> Value {
    match given.part {
        Some(Part::Text(text)) => json!({"type": "text", "text": text}),
        Some(Part::Media(item)) => media(&item),
        None => json!({}),
    }
}

fn media(item: &MediaItem) -> Value {
    let kind = match item.modality() {
        Modality::Unspecified | Modality::Image => "image_url",
        Modality::Video => "video_url",
        Modality::Audio => "audio_url",
    };
    let url = match &item.source {
        Some(Source::Url(url)) => url.clone(),
        Some(Source::Data(data)) => {
            format!("data:{};base64,{}", item.mime_type, STANDARD.encode(data))
        }
        None => String::new(),
    };
    json!({"type": kind, kind: {"url": url}})
}

fn call(given: ToolCall) -> Value {
    json!({
        "id": given.id,
        "type": "function",
        "function": {"name": given.name, "arguments": given.arguments},
    })
}

fn tool(index: usize, given: Tool) -> Result<Value, ApiError> {
    let mut function = Fields::default();
    function.text("name", given.name);
    function.text("description", given.description);
    if !given.parameters_json.is_empty() {
        let name = format!("conversation.tools.{index}.parameters_json");
        function.put("parameters", Some(parsed(&name, &given.parameters_json)?));
    }
    function.put("strict", given.strict);
    Ok(json!({"type": "function", "function": function.0}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> ContentPart {
        ContentPart {
            part: Some(Part::Text(text.to_owned())),
        }
    }

    fn with(content: Vec<ContentPart>) -> Message {
        Message {
            role: "user".to_owned(),
            content,
            ..Message::default()
        }
    }

    #[test]
    fn one_text_is_a_text_and_several_parts_are_a_list() {
        assert_eq!(message(with(vec![])), json!({"role": "user"}));
        let one = message(with(vec![text("a")]));
        assert_eq!(one, json!({"role": "user", "content": "a"}));
        let two = message(with(vec![text("a"), text("b")]));
        assert_eq!(two["content"][1], json!({"type": "text", "text": "b"}));
    }

    #[test]
    fn media_are_parts_of_their_kind() {
        let item = MediaItem {
            modality: Modality::Video.into(),
            source: Some(Source::Data(b"x".to_vec())),
            mime_type: "video/mp4".to_owned(),
            ..MediaItem::default()
        };
        let expected =
            json!({"type": "video_url", "video_url": {"url": "data:video/mp4;base64,eA=="}});
        assert_eq!(media(&item), expected);
    }

    #[test]
    fn parameters_keep_their_order_and_must_be_json() {
        let given = Tool {
            name: "f".to_owned(),
            parameters_json: r#"{"b": 1, "a": 2}"#.to_owned(),
            ..Tool::default()
        };
        let made = tool(0, given.clone()).unwrap();
        assert_eq!(
            made["function"]["parameters"].to_string(),
            r#"{"b":1,"a":2}"#
        );
        let broken = Tool {
            parameters_json: "{".to_owned(),
            ..given
        };
        let error = tool(2, broken).unwrap_err();
        assert_eq!(
            error.param.as_deref(),
            Some("conversation.tools.2.parameters_json")
        );
    }
}
