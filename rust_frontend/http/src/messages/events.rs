//! The events of a streamed message.

use bytes::{BufMut as _, Bytes, BytesMut};
use octavo_api::{ApiError, EndReason, MessageAnswer, MessageDelta, MessageEvent, MessagesUsage};

use crate::blocks::Blocks;
use crate::envelope::Identity;
use crate::live::Projection;
use crate::output::{End, Piece};

/// Writes `event: NAME` and `data: {...}`.
pub(super) struct Events {
    /// Until the first event.
    start: Option<MessageAnswer>,
    request_id: String,
    prompt_tokens: usize,
    blocks: Blocks,
    buffer: BytesMut,
}

impl Events {
    pub(super) fn new(
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
            buffer: BytesMut::new(),
        }
    }

    /// Writes the first events, once.
    fn begin(&mut self, cached: Option<usize>) {
        if let Some(mut message) = self.start.take() {
            message.usage = MessagesUsage::of_prompt(self.prompt_tokens, cached);
            write(&mut self.buffer, &MessageEvent::MessageStart { message });
            write(&mut self.buffer, &MessageEvent::Ping);
        }
    }

    fn end(&mut self, end: End) {
        let buffer = &mut self.buffer;
        self.blocks.end(&mut |event| write(buffer, &event));
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
    async fn piece(&mut self, piece: Piece, cached: Option<usize>) {
        self.begin(cached);
        let buffer = &mut self.buffer;
        self.blocks.piece(&piece.text, piece.events, &mut |event| {
            write(buffer, &event)
        });
        if let Some(end) = piece.end {
            self.end(end);
        }
    }

    fn silence(&mut self, _paused: bool) {
        if self.start.is_some() {
            self.begin(None);
        } else {
            write(&mut self.buffer, &MessageEvent::Ping);
        }
    }

    async fn fail(&mut self, error: &ApiError) {
        let event = MessageEvent::Error {
            error: error.into(),
            request_id: Some(self.request_id.clone()),
        };
        write(&mut self.buffer, &event);
    }

    fn take(&mut self) -> Bytes {
        self.buffer.split().freeze()
    }
}

/// Writes one event.
fn write(buffer: &mut BytesMut, event: &MessageEvent) {
    buffer.extend_from_slice(b"event: ");
    buffer.extend_from_slice(event.name().as_bytes());
    buffer.extend_from_slice(b"\ndata: ");
    // Events are strings, numbers and JSON values, which serialise into memory.
    let _ = serde_json::to_writer((&mut *buffer).writer(), event);
    buffer.extend_from_slice(b"\n\n");
}
