//! The fold over the events: the answer of a request that does not stream.

use crate::event::{Event, Finish};

/// One call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// Its id.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Arguments as the model gave them, as JSON.
    pub arguments: String,
    /// Whether the call was closed.
    pub closed: bool,
}

/// Everything that the model said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// The answer.
    pub content: String,
    /// The thoughts.
    pub reasoning: String,
    /// The calls.
    pub calls: Vec<ToolCall>,
    /// Tokens of the thoughts.
    pub reasoning_tokens: u32,
    /// Text that broke the format.
    pub malformed: String,
    /// How it ended.
    pub finish: Option<Finish>,
}

impl Message {
    /// Add an event.
    pub fn add(&mut self, event: &Event) {
        match event {
            Event::ReasoningDelta { text, tokens } => {
                self.reasoning.push_str(text);
                self.reasoning_tokens += tokens;
            }
            Event::ContentDelta { text } => self.content.push_str(text),
            Event::CallOpen { id, name, .. } => self.calls.push(ToolCall {
                id: id.clone(),
                name: name.clone(),
                ..ToolCall::default()
            }),
            Event::ArgsDelta { index, json } => {
                if let Some(call) = self.calls.get_mut(*index) {
                    call.arguments.push_str(json);
                }
            }
            Event::CallClose { index } => {
                if let Some(call) = self.calls.get_mut(*index) {
                    call.closed = true;
                }
            }
            Event::Malformed { raw, .. } => self.malformed.push_str(raw),
            Event::End { finish } => self.finish = Some(*finish),
        }
    }

    /// Return whether the answer ends for its calls: at least one, and the model stopped by itself.
    pub fn stopped_for_calls(&self) -> bool {
        !self.calls.is_empty() && self.finish == Some(Finish::Stop)
    }
}

impl<'a> FromIterator<&'a Event> for Message {
    fn from_iter<I: IntoIterator<Item = &'a Event>>(events: I) -> Self {
        let mut message = Self::default();
        for event in events {
            message.add(event);
        }
        message
    }
}
