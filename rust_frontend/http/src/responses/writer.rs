//! What the model says as items of a response, and the events that tell of it.

use bytes::{BufMut as _, Bytes, BytesMut};
use octavo_api::{
    ApiError, BlockDelta, ChatLogprob, ContentBlock, FinishReason, IncompleteDetails, ItemStatus,
    MessageEvent, NumberedEvent, OutputItem, OutputPart, Part, ReasoningPart, ResponseEvent,
    ResponseFailure, ResponseObject, ResponseStatus, ResponseUsage, carried,
};
use octavo_edge::unix_seconds;
use octavo_parser::Event;

use serde_json::Value;

use crate::blocks::Blocks;
use crate::logprobs::Shown;
use crate::output::End;
use crate::sse::write_comment;

/// The only part of an item's content.
const CONTENT: usize = 0;

/// A response that grows, and the events of its growth.
pub(super) struct Writer {
    object: ResponseObject,
    blocks: Blocks,
    /// Whether thoughts go out encoded too.
    carries: bool,
    /// Whether events are written.
    told: bool,
    begun: bool,
    /// Of the next event.
    number: u64,
    /// Log probabilities of tokens of which it is not known yet what they are part of.
    waiting: Vec<ChatLogprob>,
    /// Log probabilities that belong to the text which comes next.
    logprobs: Vec<Value>,
    buffer: BytesMut,
}

impl Writer {
    /// `shown`: whether thoughts are. `told`: whether events are wanted.
    pub(super) fn new(object: ResponseObject, shown: bool, carries: bool, told: bool) -> Self {
        Self {
            object,
            blocks: Blocks::new(shown),
            carries,
            told,
            begun: false,
            number: 0,
            waiting: Vec::new(),
            logprobs: Vec::new(),
            buffer: BytesMut::new(),
        }
    }

    /// The response so far.
    pub(super) fn object(&self) -> &ResponseObject {
        &self.object
    }

    /// Takes what was written since the last call.
    pub(super) fn take(&mut self) -> Bytes {
        self.buffer.split().freeze()
    }

    /// Writes a comment line, which clients skip.
    pub(super) fn comment(&mut self, text: &'static str) {
        write_comment(&mut self.buffer, text);
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

    /// Takes plain text, or what the parser makes of it. Log probabilities belong to the message's text whose tokens they
    /// are of; those of thoughts and calls are not told.
    pub(super) fn piece(&mut self, text: &str, events: Vec<Event>, logprobs: Option<Shown>) {
        if let Some(Shown::Chat(told)) = logprobs {
            self.waiting.extend(told.content);
        }
        let contents = events.iter().filter_map(|event| match event {
            Event::ContentDelta { text } => Some(text.as_str()),
            _ => None,
        });
        let said: String = std::iter::once(text).chain(contents).collect();
        let mut fresh = of_text(&self.waiting, &said);
        if !said.is_empty() || !events.is_empty() {
            self.waiting.clear();
        }
        let mut said = Vec::new();
        self.blocks
            .piece(text, events, &mut |event| said.push(event));
        for event in said {
            // Not before: thoughts that begin in this piece drop what waits for text.
            if let MessageEvent::ContentBlockDelta {
                delta: BlockDelta::TextDelta { .. },
                ..
            } = &event
            {
                self.logprobs.append(&mut fresh);
            }
            self.block(event, ItemStatus::Completed);
        }
        self.logprobs.append(&mut fresh);
    }

    /// Ends the response.
    pub(super) fn finish(&mut self, end: &End) {
        let cut = end.reason == FinishReason::Length;
        let status = if cut {
            ItemStatus::Incomplete
        } else {
            ItemStatus::Completed
        };
        let mut said = Vec::new();
        self.blocks.end(&mut |event| said.push(event));
        for event in said {
            self.block(event, status);
        }
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

    /// Turns the event of a block into those of an item; `status` is that of an item that ends.
    fn block(&mut self, event: MessageEvent, status: ItemStatus) {
        match event {
            MessageEvent::ContentBlockStart { content_block, .. } => self.add(content_block),
            MessageEvent::ContentBlockDelta { delta, .. } => self.grow(delta),
            MessageEvent::ContentBlockStop { .. } => self.close(status),
            _ => {}
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
        self.object.output.push(item.clone());
        self.say(ResponseEvent::ItemAdded { output_index, item });
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
        self.say(ResponseEvent::PartAdded {
            item_id,
            output_index,
            content_index: CONTENT,
            part,
        });
    }

    fn grow(&mut self, delta: BlockDelta) {
        let Some(item) = self.object.output.last_mut() else {
            return;
        };
        let item_id = item.id().to_owned();
        let event = match (item, delta) {
            (OutputItem::Message { content, .. }, BlockDelta::TextDelta { text: delta }) => {
                let told = std::mem::take(&mut self.logprobs);
                if let Some(OutputPart::OutputText { text, logprobs, .. }) = content.last_mut() {
                    text.push_str(&delta);
                    logprobs.extend(told.iter().cloned());
                }
                ResponseEvent::TextDelta {
                    item_id,
                    output_index: self.object.output.len() - 1,
                    content_index: CONTENT,
                    delta,
                    logprobs: told,
                }
            }
            (
                OutputItem::Reasoning { content, .. },
                BlockDelta::ThinkingDelta { thinking: delta },
            ) => {
                if let Some(ReasoningPart::ReasoningText { text }) = content.last_mut() {
                    text.push_str(&delta);
                }
                ResponseEvent::ReasoningDelta {
                    item_id,
                    output_index: self.object.output.len() - 1,
                    content_index: CONTENT,
                    delta,
                }
            }
            (
                OutputItem::FunctionCall { arguments, .. },
                BlockDelta::InputJsonDelta {
                    partial_json: delta,
                },
            ) => {
                arguments.push_str(&delta);
                ResponseEvent::ArgumentsDelta {
                    item_id,
                    output_index: self.object.output.len() - 1,
                    delta,
                }
            }
            _ => return,
        };
        self.say(event);
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
                    self.say(ResponseEvent::TextDone {
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
                    self.say(ResponseEvent::ReasoningDone {
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
            } => self.say(ResponseEvent::ArgumentsDone {
                item_id,
                output_index,
                name: name.clone(),
                arguments: arguments.clone(),
            }),
        }
        self.say(ResponseEvent::ItemDone { output_index, item });
    }

    fn part_done(&mut self, item_id: String, output_index: usize, part: Part) {
        self.say(ResponseEvent::PartDone {
            item_id,
            output_index,
            content_index: CONTENT,
            part,
        });
    }

    fn say_object(&mut self, event: impl FnOnce(Box<ResponseObject>) -> ResponseEvent) {
        if self.told {
            self.say(event(Box::new(self.object.clone())));
        }
    }

    fn say(&mut self, event: ResponseEvent) {
        if !self.told {
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
        // Events are strings, numbers and JSON values, which serialise into memory.
        let _ = serde_json::to_writer((&mut self.buffer).writer(), &event);
        self.buffer.extend_from_slice(b"\n\n");
    }
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
