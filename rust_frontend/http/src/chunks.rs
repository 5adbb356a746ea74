//! The events of a streamed chat or completion.

use bytes::BytesMut;
use octavo_api::{ApiError, ChatDelta};
use octavo_parser::Event;
use octavo_render_http::events;

use crate::envelope::{EventWriter, Identity, Ids, Style};
use crate::live::Projection;
use crate::output::Piece;
use crate::outputs::Outputs;
use crate::sse::silence;

/// Chunks, the usage where it is asked for, and the end.
pub(crate) struct Chunks {
    writer: EventWriter,
    /// Of each choice: whether an event of it is written.
    begun: Vec<bool>,
    /// Of each choice, until they are written.
    prompt_ids: Vec<Option<Vec<i32>>>,
    include_usage: bool,
    style: Style,
}

impl Chunks {
    /// `prompt_ids` has an entry for each choice.
    pub(crate) fn new(
        identity: &Identity,
        prompt_ids: Vec<Option<Vec<i32>>>,
        include_usage: bool,
        style: Style,
    ) -> Self {
        Self {
            writer: EventWriter::new(identity, include_usage),
            begun: vec![false; prompt_ids.len()],
            prompt_ids,
            include_usage,
            style,
        }
    }

    /// Writes the beginning of a choice, once.
    fn begin(&mut self, index: u32) {
        let choice = index as usize;
        let Some(begun) = self.begun.get_mut(choice).filter(|begun| !**begun) else {
            return;
        };
        *begun = true;
        if self.writer.begin(index, self.prompt_ids[choice].as_deref()) {
            self.prompt_ids[choice] = None;
        }
        if let Some(text) = &self.style.echo {
            self.writer.text(index, text, Ids::default());
        }
    }

    /// Writes events; what belongs to the step's tokens goes with the first that shows something.
    fn events(&mut self, index: u32, piece: &mut Piece) {
        let mut ids = Ids {
            prompt: None,
            tokens: &piece.tokens,
            logprobs: piece.logprobs.as_ref(),
        };
        for event in piece.events.drain(..) {
            if let Event::ContentDelta { text } = &event {
                self.writer.text(index, text, std::mem::take(&mut ids));
            } else if let Some(delta) = events::delta(event, self.style.reasoning) {
                self.writer.delta(index, &delta, std::mem::take(&mut ids));
            }
        }
        if !ids.tokens.is_empty() || ids.logprobs.is_some() {
            self.writer.delta(index, &ChatDelta::default(), ids);
        }
    }

    /// Writes what follows the last choice.
    fn finish(&mut self, outputs: &Outputs) {
        if self.include_usage {
            self.writer.usage(&outputs.usage());
        }
        if let Some(timing) = outputs.timing().filter(|_| self.style.timed) {
            self.writer.timing(&timing);
        }
        if let Some(versions) = outputs.weight_versions() {
            self.writer.weight_versions(&versions);
        }
        self.writer.done();
    }
}

impl Projection for Chunks {
    fn piece(&mut self, index: u32, piece: &mut Piece, outputs: &Outputs) {
        if self.style.counted {
            self.writer.count(outputs.usage());
        }
        self.begin(index);
        if !piece.events.is_empty() {
            self.events(index, piece);
        } else if piece.shows_something() {
            let choice = self.prompt_ids.get_mut(index as usize);
            let prompt = choice.and_then(Option::take);
            let ids = Ids {
                prompt: prompt.as_deref(),
                tokens: &piece.tokens,
                logprobs: piece.logprobs.as_ref(),
            };
            self.writer.text(index, &piece.text, ids);
        }
        if let Some(end) = piece.end.take() {
            self.writer.finish(index, end.reason, end.stop.as_ref());
        }
        if outputs.open() == 0 {
            self.finish(outputs);
        }
    }

    fn silence(&mut self, paused: bool) {
        self.writer.comment(silence(paused));
    }

    fn fail(&mut self, error: &ApiError) {
        self.writer.error(error);
        self.writer.done();
    }

    fn buffer(&mut self) -> &mut BytesMut {
        self.writer.buffer()
    }
}
