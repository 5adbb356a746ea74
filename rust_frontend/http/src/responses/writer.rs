//! What the model says as items of a response, and the events that tell of it.

use bytes::BytesMut;
use octavo_api::{
    ApiError, ChatLogprob, ContentBlock, FinishReason, IncompleteDetails, ItemStatus, OutputItem,
    OutputPart, Part, ReasoningPart, ResponseEvent, ResponseFailure, ResponseObject,
    ResponseStatus, ResponseUsage, carried,
};
use octavo_edge::unix_seconds;
use octavo_parser::Event;

use serde_json::Value;

use super::tell::{CONTENT, Tell};
use crate::blocks::{Blocks, Change};
use crate::logprobs::Shown;
use crate::output::{End, Piece};
use crate::sse::write_comment;

/// A response that grows, and the events of its growth.
pub(crate) struct Writer {
    object: ResponseObject,
    blocks: Blocks,
    /// Whether thoughts go out encoded too.
    carries: bool,
    tell: Tell,
    begun: bool,
    /// Log probabilities of tokens of which it is not known yet what they are part of.
    waiting: Vec<ChatLogprob>,
    /// Log probabilities that belong to the text which comes next.
    logprobs: Vec<Value>,
}

impl Writer {
    /// `shown`: whether thoughts are. `told`: whether events are wanted.
    pub(crate) fn new(object: ResponseObject, shown: bool, carries: bool, told: bool) -> Self {
        Self {
            object,
            blocks: Blocks::new(shown),
            carries,
            tell: Tell::new(told),
            begun: false,
            waiting: Vec::new(),
            logprobs: Vec::new(),
        }
    }

    /// The response so far.
    pub(super) fn object(&self) -> &ResponseObject {
        &self.object
    }

    /// What was written and has not been taken.
    pub(crate) fn buffer(&mut self) -> &mut BytesMut {
        self.tell.buffer()
    }

    /// Writes a comment line, which clients skip.
    pub(super) fn comment(&mut self, text: &'static str) {
        write_comment(self.tell.buffer(), text);
    }

    /// Tells that the response waits in the background.
    pub(super) fn queue(&mut self) {
        self.object.status = ResponseStatus::Queued;
        self.say_object(|response| ResponseEvent::Created { response });
        self.say_object(|response| ResponseEvent::Queued { response });
        self.begun = true;
    }

    /// Tells that the response runs; does nothing when that was told. Returns whether it was not.
    pub(super) fn begin(&mut self) -> bool {
        if self.begun && self.object.status != ResponseStatus::Queued {
            return false;
        }
        self.object.status = ResponseStatus::InProgress;
        if !self.begun {
            self.say_object(|response| ResponseEvent::Created { response });
        }
        self.say_object(|response| ResponseEvent::InProgress { response });
        self.begun = true;
        true
    }

    /// Takes a piece. Returns whether it is the last: then the response has ended.
    pub(crate) fn take(&mut self, piece: &mut Piece) -> bool {
        self.begin();
        let logprobs = piece.logprobs.take();
        self.grown(&piece.text, &mut piece.events, logprobs);
        let end = piece.end.take();
        if let Some(end) = &end {
            self.finish(end);
        }
        end.is_some()
    }

    /// Takes plain text, or what the parser makes of it. Log probabilities belong to the message's text whose tokens they
    /// are of; those of thoughts and calls are not told.
    fn grown(&mut self, text: &str, events: &mut Vec<Event>, logprobs: Option<Shown>) {
        if let Some(Shown::Chat(told)) = logprobs {
            self.waiting.extend(told.content);
        }
        let mut fresh = Vec::new();
        if !self.waiting.is_empty() {
            fresh = of_text(&self.waiting, &said(text, events));
            if !text.is_empty() || !events.is_empty() {
                self.waiting.clear();
            }
        }
        // Given back below: it hands out what changes the rest of the writer.
        let mut blocks = std::mem::take(&mut self.blocks);
        blocks.piece(text, events, &mut |_, change| {
            // Not before: thoughts that begin in this piece drop what waits for text.
            if let Change::Text(_) = &change {
                self.logprobs.append(&mut fresh);
            }
            self.block(change, ItemStatus::Completed);
        });
        self.blocks = blocks;
        self.logprobs.append(&mut fresh);
    }

    /// Ends the response.
    fn finish(&mut self, end: &End) {
        let cut = end.reason == FinishReason::Length;
        let status = if cut {
            ItemStatus::Incomplete
        } else {
            ItemStatus::Completed
        };
        let mut blocks = std::mem::take(&mut self.blocks);
        blocks.end(&mut |_, change| self.block(change, status));
        self.object.usage = Some(ResponseUsage::from(&end.usage));
        if cut {
            self.object.status = ResponseStatus::Incomplete;
            self.object.incomplete_details = Some(IncompleteDetails {
                reason: "max_output_tokens".into(),
            });
            self.say_object(|response| ResponseEvent::Incomplete { response });
        } else {
            self.object.status = ResponseStatus::Completed;
            self.object.completed_at = Some(unix_seconds());
            self.say_object(|response| ResponseEvent::Completed { response });
        }
    }

    /// Ends the response with an error.
    pub(super) fn fail(&mut self, error: &ApiError) {
        self.object.error = Some(ResponseFailure {
            code: match error.status() {
                429 => "rate_limit_exceeded".to_owned(),
                400..500 => error.code.to_owned(),
                _ => "server_error".to_owned(),
            },
            message: error.message.clone(),
        });
        self.stop(ResponseStatus::Failed);
    }

    /// Ends the response as the client wishes.
    pub(super) fn cancel(&mut self) {
        self.stop(ResponseStatus::Cancelled);
    }

    fn stop(&mut self, status: ResponseStatus) {
        self.begin();
        if let Some(item) = self.object.output.last_mut()
            && item.status() == ItemStatus::InProgress
        {
            item.set_status(ItemStatus::Incomplete);
        }
        self.object.status = status;
        self.say_object(|response| ResponseEvent::Failed { response });
    }

    /// Turns what happens to a block into events of an item; `status` is that of an item that ends.
    fn block(&mut self, change: Change<'_>, status: ItemStatus) {
        match change {
            Change::Begin(block) => self.add(block),
            Change::End => self.close(status),
            Change::Text(_) | Change::Thoughts(_) | Change::Input(_) => self.grow(&change),
            Change::Signature(_) => {}
        }
    }

    fn add(&mut self, block: ContentBlock) {
        if !matches!(block, ContentBlock::Text { .. }) {
            self.logprobs.clear(); // of white space that is dropped
        }
        let output_index = self.object.output.len();
        let id = |prefix: &str| {
            let own = self.object.id.trim_start_matches("resp_");
            format!("{prefix}_{own}{output_index:02x}")
        };
        let status = ItemStatus::InProgress;
        let (item, part) = match block {
            ContentBlock::Text { text } => {
                let item = OutputItem::Message {
                    id: id("msg"),
                    status,
                    role: "assistant".into(),
                    content: Vec::new(),
                };
                (item, Some(Part::Output(OutputPart::text(text))))
            }
            ContentBlock::Thinking { thinking, .. } => {
                let item = OutputItem::Reasoning {
                    id: id("rs"),
                    summary: Vec::new(),
                    content: Vec::new(),
                    encrypted_content: None,
                    status,
                };
                let part = ReasoningPart::ReasoningText { text: thinking };
                (item, Some(Part::Reasoning(part)))
            }
            ContentBlock::ToolUse {
                id: call_id, name, ..
            } => {
                let item = OutputItem::FunctionCall {
                    id: id("fc"),
                    status,
                    call_id,
                    name,
                    arguments: String::new(),
                };
                (item, None)
            }
        };
        let item_id = item.id().to_owned();
        self.tell.begin(&item, output_index);
        self.object.output.push(item.clone());
        self.tell
            .say(ResponseEvent::ItemAdded { output_index, item });
        if let Some(part) = part {
            self.add_part(item_id, output_index, part);
        }
    }

    fn add_part(&mut self, item_id: String, output_index: usize, part: Part) {
        match (self.object.output.last_mut(), part.clone()) {
            (Some(OutputItem::Message { content, .. }), Part::Output(part)) => content.push(part),
            (Some(OutputItem::Reasoning { content, .. }), Part::Reasoning(part)) => {
                content.push(part);
            }
            _ => {}
        }
        self.tell.say(ResponseEvent::PartAdded {
            item_id,
            output_index,
            content_index: CONTENT,
            part,
        });
    }

    fn grow(&mut self, change: &Change<'_>) {
        let Some(item) = self.object.output.last_mut() else {
            return;
        };
        match (item, change) {
            (OutputItem::Message { content, .. }, Change::Text(delta)) => {
                let told = std::mem::take(&mut self.logprobs);
                self.tell.gain(delta, Some(&told));
                if let Some(OutputPart::OutputText { text, logprobs, .. }) = content.last_mut() {
                    text.push_str(delta);
                    logprobs.extend(told);
                }
            }
            (OutputItem::Reasoning { content, .. }, Change::Thoughts(delta)) => {
                self.tell.gain(delta, None);
                if let Some(ReasoningPart::ReasoningText { text }) = content.last_mut() {
                    text.push_str(delta);
                }
            }
            (OutputItem::FunctionCall { arguments, .. }, Change::Input(delta)) => {
                self.tell.gain(delta, None);
                arguments.push_str(delta);
            }
            _ => {}
        }
    }

    /// Tells that the last item is whole.
    fn close(&mut self, now: ItemStatus) {
        let Some(item) = self.object.output.last_mut() else {
            return;
        };
        item.set_status(now);
        if let OutputItem::Reasoning {
            content,
            encrypted_content,
            ..
        } = item
            && let Some(ReasoningPart::ReasoningText { text }) = content.first()
        {
            *encrypted_content = self.carries.then(|| carried(text));
        }
        let item = item.clone();
        let output_index = self.object.output.len() - 1;
        let item_id = item.id().to_owned();
        match &item {
            OutputItem::Message { content, .. } => {
                if let Some(part @ OutputPart::OutputText { text, logprobs, .. }) = content.first()
                {
                    self.tell.say(ResponseEvent::TextDone {
                        item_id: item_id.clone(),
                        output_index,
                        content_index: CONTENT,
                        text: text.clone(),
                        logprobs: logprobs.clone(),
                    });
                    self.part_done(item_id, output_index, Part::Output(part.clone()));
                }
            }
            OutputItem::Reasoning { content, .. } => {
                if let Some(part @ ReasoningPart::ReasoningText { text }) = content.first() {
                    self.tell.say(ResponseEvent::ReasoningDone {
                        item_id: item_id.clone(),
                        output_index,
                        content_index: CONTENT,
                        text: text.clone(),
                    });
                    self.part_done(item_id, output_index, Part::Reasoning(part.clone()));
                }
            }
            OutputItem::FunctionCall {
                name, arguments, ..
            } => self.tell.say(ResponseEvent::ArgumentsDone {
                item_id,
                output_index,
                name: name.clone(),
                arguments: arguments.clone(),
            }),
        }
        self.tell
            .say(ResponseEvent::ItemDone { output_index, item });
    }

    fn part_done(&mut self, item_id: String, output_index: usize, part: Part) {
        self.tell.say(ResponseEvent::PartDone {
            item_id,
            output_index,
            content_index: CONTENT,
            part,
        });
    }

    fn say_object(&mut self, event: impl FnOnce(Box<ResponseObject>) -> ResponseEvent) {
        if self.tell.wanted() {
            self.tell.say(event(Box::new(self.object.clone())));
        }
    }
}

/// All that is said in a piece.
fn said(text: &str, events: &[Event]) -> String {
    let contents = events.iter().filter_map(|event| match event {
        Event::ContentDelta { text } => Some(text.as_str()),
        _ => None,
    });
    std::iter::once(text).chain(contents).collect()
}

/// The log probabilities of the tokens that a text ends with: markers before them, and a stop token behind, are none of it.
fn of_text(tokens: &[ChatLogprob], text: &str) -> Vec<Value> {
    let mut rest = text.as_bytes();
    let mut found = Vec::new();
    for token in tokens.iter().rev() {
        match rest.strip_suffix(token.bytes.as_slice()) {
            Some(before) if !token.bytes.is_empty() => {
                rest = before;
                found.extend(serde_json::to_value(token).ok());
            }
            _ if found.is_empty() => {}
            _ => break,
        }
    }
    found.reverse();
    found
}
