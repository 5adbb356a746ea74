//! What the parser says, as the deltas of a streamed chat and as the message of one that is not.

use octavo_api::{
    AssistantMessage, ChatDelta, ReasoningField, ReasoningFields, ToolCall, ToolCallDelta,
};
use octavo_parser::{Event, Message};

/// What an event adds to a streamed message; `None`: nothing that the client sees.
#[must_use]
pub fn delta(event: Event, reasoning: ReasoningFields) -> Option<ChatDelta> {
    match event {
        Event::ContentDelta { text } => Some(ChatDelta {
            content: Some(text),
            ..ChatDelta::default()
        }),
        Event::ReasoningDelta { text, .. } if reasoning.include && !text.is_empty() => {
            let (reasoning, reasoning_content) = named(text, reasoning.field);
            Some(ChatDelta {
                reasoning,
                reasoning_content,
                ..ChatDelta::default()
            })
        }
        Event::CallOpen { index, id, name } => Some(call(ToolCallDelta::open(index, id, name))),
        Event::ArgsDelta { index, json } => Some(call(ToolCallDelta::arguments(index, json))),
        Event::ReasoningDelta { .. }
        | Event::CallClose { .. }
        | Event::Malformed { .. }
        | Event::End { .. } => None,
    }
}

/// All that some events add, as one delta.
pub(crate) fn merged(events: Vec<Event>, reasoning: ReasoningFields) -> ChatDelta {
    let mut all = ChatDelta::default();
    for more in events
        .into_iter()
        .filter_map(|event| delta(event, reasoning))
    {
        join(&mut all.content, more.content);
        join(&mut all.reasoning, more.reasoning);
        join(&mut all.reasoning_content, more.reasoning_content);
        for call in more.tool_calls {
            match all.tool_calls.last_mut() {
                Some(last) if last.index == call.index && call.id.is_none() => {
                    last.function.arguments.push_str(&call.function.arguments);
                }
                _ => all.tool_calls.push(call),
            }
        }
    }
    all
}

fn join(all: &mut Option<String>, more: Option<String>) {
    if let Some(more) = more {
        all.get_or_insert_default().push_str(&more);
    }
}

fn call(delta: ToolCallDelta) -> ChatDelta {
    ChatDelta {
        tool_calls: vec![delta],
        ..ChatDelta::default()
    }
}

/// The message of an answer: the fold of its events. Content is null where something else was said and no content.
#[must_use]
pub fn message(said: Message, reasoning: ReasoningFields) -> AssistantMessage {
    let silent = said.content.is_empty() && !(said.calls.is_empty() && said.reasoning.is_empty());
    let thoughts = Some(said.reasoning).filter(|text| reasoning.include && !text.is_empty());
    let (first, second) = thoughts.map_or((None, None), |text| named(text, reasoning.field));
    let calls = said
        .calls
        .into_iter()
        .map(|call| ToolCall::function(call.id, call.name, call.arguments));
    AssistantMessage {
        content: (!silent).then_some(said.content),
        reasoning: first,
        reasoning_content: second,
        tool_calls: calls.collect(),
        ..AssistantMessage::text(String::new())
    }
}

/// Thoughts under the names that the client wants.
fn named(text: String, field: ReasoningField) -> (Option<String>, Option<String>) {
    match field {
        ReasoningField::Reasoning => (Some(text), None),
        ReasoningField::ReasoningContent => (None, Some(text)),
        ReasoningField::Both => (Some(text.clone()), Some(text)),
    }
}

#[cfg(test)]
mod tests {
    use octavo_parser::{Finish, ToolCall as Call};
    use serde_json::json;

    use super::*;

    fn shown(event: Event, reasoning: ReasoningFields) -> serde_json::Value {
        serde_json::to_value(delta(event, reasoning)).unwrap()
    }

    #[test]
    fn a_call_has_its_head_once_and_arguments_after() {
        let open = Event::CallOpen {
            index: 1,
            id: "call_x".to_owned(),
            name: "f".to_owned(),
        };
        let more = Event::ArgsDelta {
            index: 1,
            json: "{\"a\"".to_owned(),
        };
        let default = ReasoningFields::default();
        let head = json!({"index": 1, "id": "call_x", "type": "function", "function": {"name": "f", "arguments": ""}});
        assert_eq!(shown(open, default), json!({"tool_calls": [head]}));
        let rest = json!({"index": 1, "function": {"arguments": "{\"a\""}});
        assert_eq!(shown(more, default), json!({"tool_calls": [rest]}));
        let end = Event::End {
            finish: Finish::Stop,
        };
        assert_eq!(shown(end, default), json!(null));
    }

    #[test]
    fn merged_events_are_one_delta() {
        let args = |json: &str| Event::ArgsDelta {
            index: 0,
            json: json.to_owned(),
        };
        let open = Event::CallOpen {
            index: 0,
            id: "call_x".to_owned(),
            name: "f".to_owned(),
        };
        let said = |text: &str| Event::ContentDelta {
            text: text.to_owned(),
        };
        let events = vec![said("a"), said("b"), open, args("{"), args("}")];
        let delta = merged(events, ReasoningFields::default());
        let call = json!({"index": 0, "id": "call_x", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        assert_eq!(
            serde_json::to_value(delta).unwrap(),
            json!({"content": "ab", "tool_calls": [call]})
        );
    }

    #[test]
    fn thoughts_have_the_names_that_are_asked_for() {
        let thought = || Event::ReasoningDelta {
            text: "hm".to_owned(),
            tokens: 1,
        };
        for (field, expected) in [
            (ReasoningField::Reasoning, json!({"reasoning": "hm"})),
            (
                ReasoningField::ReasoningContent,
                json!({"reasoning_content": "hm"}),
            ),
            (
                ReasoningField::Both,
                json!({"reasoning": "hm", "reasoning_content": "hm"}),
            ),
        ] {
            let fields = ReasoningFields {
                include: true,
                field,
            };
            assert_eq!(shown(thought(), fields), expected);
            let hidden = ReasoningFields {
                include: false,
                field,
            };
            assert_eq!(shown(thought(), hidden), json!(null));
        }
    }

    #[test]
    fn content_is_null_only_beside_thoughts_or_calls() {
        let default = ReasoningFields::default();
        assert_eq!(
            message(Message::default(), default).content.as_deref(),
            Some("")
        );
        let calls = Message {
            calls: vec![Call {
                name: "f".to_owned(),
                ..Call::default()
            }],
            ..Message::default()
        };
        assert_eq!(message(calls.clone(), default).content, None);
        assert_eq!(message(calls, default).tool_calls[0].function.name, "f");
    }
}
