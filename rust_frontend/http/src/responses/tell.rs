//! Writes the numbered events of a response. What is equal in all gains of an item is serialised once.

use bytes::{BufMut as _, BytesMut};
use octavo_api::{NumberedEvent, OutputItem, ResponseEvent};
use serde_json::Value;

use crate::live::BUFFER;
use crate::sse::{write_json, write_text};

/// The only part of an item's content.
pub(super) const CONTENT: usize = 0;

/// Events, where they are wanted.
pub(super) struct Tell {
    wanted: bool,
    /// Of the next event.
    number: u64,
    /// What stands before that which the item that began last gains.
    head: Vec<u8>,
    buffer: BytesMut,
}

impl Tell {
    pub(super) fn new(wanted: bool) -> Self {
        Self {
            wanted,
            number: 0,
            head: Vec::new(),
            buffer: BytesMut::with_capacity(if wanted { BUFFER } else { 0 }),
        }
    }

    /// Whether events are written.
    pub(super) fn wanted(&self) -> bool {
        self.wanted
    }

    /// What was written and has not been taken.
    pub(super) fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Writes an event.
    pub(super) fn say(&mut self, event: ResponseEvent) {
        if !self.wanted {
            return;
        }
        let name = event.name();
        let event = NumberedEvent {
            event,
            sequence_number: self.number,
        };
        self.number += 1;
        self.buffer.extend_from_slice(b"event: ");
        self.buffer.extend_from_slice(name.as_bytes());
        self.buffer.extend_from_slice(b"\ndata: ");
        write_json(&mut (&mut self.buffer).writer(), &event);
        self.buffer.extend_from_slice(b"\n\n");
    }

    /// Prepares for what an item gains.
    pub(super) fn begin(&mut self, item: &OutputItem, output_index: usize) {
        if !self.wanted {
            return;
        }
        let (name, parted) = match item {
            OutputItem::Message { .. } => ("response.output_text.delta", true),
            OutputItem::Reasoning { .. } => ("response.reasoning_text.delta", true),
            OutputItem::FunctionCall { .. } => ("response.function_call_arguments.delta", false),
        };
        let head = &mut self.head;
        head.clear();
        head.extend_from_slice(b"event: ");
        head.extend_from_slice(name.as_bytes());
        head.extend_from_slice(b"\ndata: {\"type\":\"");
        head.extend_from_slice(name.as_bytes());
        head.extend_from_slice(b"\",\"item_id\":");
        write_json(head, item.id());
        head.extend_from_slice(b",\"output_index\":");
        write_json(head, &output_index);
        if parted {
            head.extend_from_slice(b",\"content_index\":");
            write_json(head, &CONTENT);
        }
        head.extend_from_slice(b",\"delta\":");
    }

    /// Writes what the item that began last gains. Texts of messages come with log probabilities, be there none.
    pub(super) fn gain(&mut self, delta: &str, logprobs: Option<&[Value]>) {
        if !self.wanted {
            return;
        }
        let buffer = &mut self.buffer;
        buffer.extend_from_slice(&self.head);
        write_text(buffer, delta);
        if let Some(logprobs) = logprobs {
            buffer.extend_from_slice(b",\"logprobs\":");
            write_json(&mut buffer.writer(), logprobs);
        }
        buffer.extend_from_slice(b",\"sequence_number\":");
        write_json(&mut buffer.writer(), &self.number);
        buffer.extend_from_slice(b"}\n\n");
        self.number += 1;
    }
}

#[cfg(test)]
mod tests {
    use octavo_api::ItemStatus;
    use serde_json::json;

    use super::*;

    /// A message, thoughts and a call, all of one id.
    fn items(id: &str) -> [OutputItem; 3] {
        let (id, status) = (|| id.to_owned(), ItemStatus::InProgress);
        let message = OutputItem::Message {
            id: id(),
            status,
            role: "assistant".into(),
            content: Vec::new(),
        };
        let thoughts = OutputItem::Reasoning {
            id: id(),
            summary: Vec::new(),
            content: Vec::new(),
            encrypted_content: None,
            status,
        };
        let call = OutputItem::FunctionCall {
            id: id(),
            status,
            call_id: "c".to_owned(),
            name: "f".to_owned(),
            arguments: String::new(),
        };
        [message, thoughts, call]
    }

    #[test]
    fn what_an_item_gains_is_written_as_serde_would() {
        let delta = "a\"b\\ \u{1}\n字";
        let (own, item_id) = (|| delta.to_owned(), || "i\"d".to_owned());
        let [message, thoughts, call] = items(&item_id());
        let (told, none) = (vec![json!({"token": "a"})], Vec::new());
        let text = |logprobs: &Vec<Value>| ResponseEvent::TextDelta {
            item_id: item_id(),
            output_index: 3,
            content_index: CONTENT,
            delta: own(),
            logprobs: logprobs.clone(),
        };
        let cases = [
            (&message, Some(&told), text(&told)),
            (&message, Some(&none), text(&none)),
            (
                &thoughts,
                None,
                ResponseEvent::ReasoningDelta {
                    item_id: item_id(),
                    output_index: 3,
                    content_index: CONTENT,
                    delta: own(),
                },
            ),
            (
                &call,
                None,
                ResponseEvent::ArgumentsDelta {
                    item_id: item_id(),
                    output_index: 3,
                    delta: own(),
                },
            ),
        ];
        let (mut short, mut long) = (Tell::new(true), Tell::new(true));
        for (item, logprobs, event) in cases {
            short.begin(item, 3);
            short.gain(delta, logprobs.map(Vec::as_slice));
            long.say(event);
            assert_eq!(short.buffer, long.buffer);
        }
        let mut silent = Tell::new(false);
        silent.begin(&message, 0);
        silent.gain(delta, None);
        assert!(silent.buffer.is_empty());
    }
}
