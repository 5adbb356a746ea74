//! The events of a stream of token ids.

use bytes::{BufMut as _, BytesMut};
use octavo_api::{ApiError, Usage};
use octavo_edge::error_json;
use serde::Serialize;

use crate::envelope::Identity;
use crate::live::{BUFFER, Projection};
use crate::output::Piece;
use crate::outputs::Outputs;
use crate::sse::{silence, write_comment, write_json};

/// Which events of a stream carry a usage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    /// One of its own, the last.
    pub(crate) last: bool,
    /// Each, as far as the outputs go then.
    pub(crate) each: bool,
}

/// Writes what `GenerateResponse` would be for each piece.
pub(crate) struct Events {
    /// `data: {…,"choices":[`
    head: Vec<u8>,
    counted: Counted,
    buffer: BytesMut,
}

#[derive(Serialize)]
struct Head<'a> {
    request_id: &'a str,
    model: &'a str,
    created: u64,
}

impl Events {
    pub(crate) fn new(identity: &Identity, counted: Counted) -> Self {
        let mut head = b"data: ".to_vec();
        write_json(
            &mut head,
            &Head {
                request_id: &identity.id,
                model: &identity.model,
                created: identity.created,
            },
        );
        head.pop(); // the closing brace
        head.extend_from_slice(b",\"choices\":[");
        Self {
            head,
            counted,
            buffer: BytesMut::with_capacity(BUFFER),
        }
    }

    /// Writes the choice that a piece is of.
    fn choice(&mut self, index: u32, piece: &mut Piece) {
        let end = piece.end.take();
        let buffer = &mut self.buffer;
        buffer.extend_from_slice(b"{\"index\":");
        write_json(&mut buffer.writer(), &index);
        buffer.extend_from_slice(b",\"token_ids\":");
        write_json(&mut buffer.writer(), &piece.tokens[..]);
        buffer.extend_from_slice(b",\"logprobs\":");
        write_json(&mut buffer.writer(), &piece.logprobs);
        buffer.extend_from_slice(b",\"finish_reason\":");
        write_json(&mut buffer.writer(), &end.as_ref().map(|end| end.reason));
        if let Some(stop) = end.and_then(|end| end.stop) {
            buffer.extend_from_slice(b",\"stop_reason\":");
            write_json(&mut buffer.writer(), &stop);
        }
        buffer.put_u8(b'}');
    }

    /// Ends an event behind its choices.
    fn close(&mut self, usage: Option<&Usage>, weights: Option<Vec<String>>) {
        let buffer = &mut self.buffer;
        buffer.put_u8(b']');
        if let Some(usage) = usage {
            buffer.extend_from_slice(b",\"usage\":");
            write_json(&mut buffer.writer(), usage);
        }
        if let Some(weights) = weights {
            buffer.extend_from_slice(b",\"weight_versions\":");
            write_json(&mut buffer.writer(), &weights);
        }
        buffer.extend_from_slice(b"}\n\n");
    }

    fn done(&mut self) {
        self.buffer.extend_from_slice(b"data: [DONE]\n\n");
    }
}

impl Projection for Events {
    fn piece(&mut self, index: u32, piece: &mut Piece, outputs: &Outputs) {
        if !piece.tokens.is_empty() || piece.logprobs.is_some() || piece.end.is_some() {
            self.buffer.extend_from_slice(&self.head);
            self.choice(index, piece);
            let so_far = self.counted.each.then(|| outputs.usage());
            self.close(so_far.as_ref(), None);
        }
        if outputs.open() > 0 {
            return;
        }
        if self.counted.last {
            self.buffer.extend_from_slice(&self.head);
            self.close(Some(&outputs.usage()), outputs.weight_versions());
        }
        self.done();
    }

    fn silence(&mut self, paused: bool) {
        write_comment(&mut self.buffer, silence(paused));
    }

    fn fail(&mut self, error: &ApiError) {
        self.buffer.extend_from_slice(b"data: ");
        self.buffer.extend_from_slice(&error_json(error));
        self.buffer.extend_from_slice(b"\n\n");
        self.done();
    }

    fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }
}
