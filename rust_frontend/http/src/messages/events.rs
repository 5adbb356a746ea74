//! The events of a streamed message.

use bytes::{BufMut as _, BytesMut};
use octavo_api::{
    ApiError, BlockDelta, EndReason, MessageAnswer, MessageDelta, MessageEvent, MessagesUsage,
    Usage,
};

use crate::blocks::{Blocks, Change};
use crate::envelope::Identity;
use crate::live::{BUFFER, Projection};
use crate::output::{End, Piece};
use crate::outputs::Outputs;
use crate::sse::{write_json, write_text};

/// Writes `event: NAME` and `data: {...}`.
pub(crate) struct Events {
    /// Until the first event.
    start: Option<MessageAnswer>,
    request_id: String,
    prompt_tokens: usize,
    blocks: Blocks,
    buffer: BytesMut,
}

impl Events {
    pub(crate) fn new(
        identity: &Identity,
        request_id: &str,
        prompt_tokens: usize,
        shown: bool,
    ) -> Self {
        let (id, model) = (identity.id.clone(), identity.model.clone());
        Self {
            start: Some(MessageAnswer::begin(id, model, MessagesUsage::default())),
            request_id: request_id.to_owned(),
            prompt_tokens,
            blocks: Blocks::new(shown),
            buffer: BytesMut::with_capacity(BUFFER),
        }
    }

    /// Writes the first events, once.
    fn begin(&mut self, usage: &Usage) {
        if let Some(mut message) = self.start.take() {
            message.usage = MessagesUsage::begun(usage);
            write(&mut self.buffer, &MessageEvent::MessageStart { message });
            write(&mut self.buffer, &MessageEvent::Ping);
        }
    }

    fn end(&mut self, end: End) {
        let buffer = &mut self.buffer;
        self.blocks
            .end(&mut |index, change| write_change(buffer, index, change));
        let (stop_reason, stop_sequence) = EndReason::of(end.reason, end.stop);
        let event = MessageEvent::MessageDelta {
            delta: MessageDelta {
                stop_reason,
                stop_sequence,
            },
            usage: MessagesUsage::from(&end.usage),
        };
        write(buffer, &event);
        write(buffer, &MessageEvent::MessageStop);
    }
}

impl Projection for Events {
    fn piece(&mut self, _index: u32, piece: &mut Piece, outputs: &Outputs) {
        if self.start.is_some() {
            self.begin(&outputs.usage());
        }
        let buffer = &mut self.buffer;
        self.blocks
            .piece(&piece.text, &mut piece.events, &mut |index, change| {
                write_change(buffer, index, change);
            });
        if let Some(end) = piece.end.take() {
            self.end(end);
        }
    }

    fn silence(&mut self, _paused: bool) {
        if self.start.is_some() {
            self.begin(&Usage::new(self.prompt_tokens, 0, None));
        } else {
            write(&mut self.buffer, &MessageEvent::Ping);
        }
    }

    fn fail(&mut self, error: &ApiError) {
        let event = MessageEvent::Error {
            error: error.into(),
            request_id: Some(self.request_id.clone()),
        };
        write(&mut self.buffer, &event);
    }

    fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }
}

/// Writes one event.
fn write(buffer: &mut BytesMut, event: &MessageEvent) {
    buffer.extend_from_slice(b"event: ");
    buffer.extend_from_slice(event.name().as_bytes());
    buffer.extend_from_slice(b"\ndata: ");
    write_json(&mut buffer.writer(), event);
    buffer.extend_from_slice(b"\n\n");
}

/// Writes what happens to a block.
fn write_change(buffer: &mut BytesMut, index: usize, change: Change<'_>) {
    let event = match change {
        Change::Text(text) => return write_gain(buffer, index, br#"text_delta","text":"#, text),
        Change::Thoughts(text) => {
            return write_gain(buffer, index, br#"thinking_delta","thinking":"#, text);
        }
        Change::Input(json) => {
            return write_gain(buffer, index, br#"input_json_delta","partial_json":"#, json);
        }
        Change::Signature(signature) => MessageEvent::ContentBlockDelta {
            index,
            delta: BlockDelta::SignatureDelta { signature },
        },
        Change::Begin(content_block) => MessageEvent::ContentBlockStart {
            index,
            content_block,
        },
        Change::End => MessageEvent::ContentBlockStop { index },
    };
    write(buffer, &event);
}

/// Writes what a block gains, as each token brings it: fixed parts around the text.
fn write_gain(buffer: &mut BytesMut, index: usize, kind: &[u8], gained: &str) {
    buffer.extend_from_slice(
        b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":",
    );
    write_json(&mut buffer.writer(), &index);
    buffer.extend_from_slice(b",\"delta\":{\"type\":\"");
    buffer.extend_from_slice(kind);
    write_text(buffer, gained);
    buffer.extend_from_slice(b"}}\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_block_gains_is_written_as_serde_would() {
        let said = "a\"b\\ \u{1}\n字";
        let own = || said.to_owned();
        let cases = [
            (Change::Text(said), BlockDelta::TextDelta { text: own() }),
            (
                Change::Thoughts(said),
                BlockDelta::ThinkingDelta { thinking: own() },
            ),
            (
                Change::Input(said),
                BlockDelta::InputJsonDelta {
                    partial_json: own(),
                },
            ),
        ];
        for (index, (change, delta)) in cases.into_iter().enumerate() {
            let (mut short, mut long) = (BytesMut::new(), BytesMut::new());
            write_change(&mut short, index, change);
            write(&mut long, &MessageEvent::ContentBlockDelta { index, delta });
            assert_eq!(short, long);
        }
    }
}
