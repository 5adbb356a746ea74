//! The events of a streamed response.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::object::{OutputItem, OutputPart, ReasoningPart, ResponseObject};

/// One event, with its number in the stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NumberedEvent {
    /// What happened.
    #[serde(flatten)]
    pub event: ResponseEvent,
    /// From 0, without gaps.
    pub sequence_number: u64,
}

/// A content part, whichever kind of item it belongs to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Part {
    /// Of a message.
    Output(OutputPart),
    /// Of thoughts.
    Reasoning(ReasoningPart),
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type")]
#[expect(missing_docs, reason = "the fields are those of OpenAI's document")]
pub enum ResponseEvent {
    /// The first.
    #[serde(rename = "response.created")]
    Created { response: Box<ResponseObject> },
    /// It waits in the background.
    #[serde(rename = "response.queued")]
    Queued { response: Box<ResponseObject> },
    /// It runs.
    #[serde(rename = "response.in_progress")]
    InProgress { response: Box<ResponseObject> },
    /// The last: done.
    #[serde(rename = "response.completed")]
    Completed { response: Box<ResponseObject> },
    /// The last: cut by a limit.
    #[serde(rename = "response.incomplete")]
    Incomplete { response: Box<ResponseObject> },
    /// The last: broken, or cancelled.
    #[serde(rename = "response.failed")]
    Failed { response: Box<ResponseObject> },
    /// An item begins.
    #[serde(rename = "response.output_item.added")]
    ItemAdded {
        output_index: usize,
        item: OutputItem,
    },
    /// An item is whole.
    #[serde(rename = "response.output_item.done")]
    ItemDone {
        output_index: usize,
        item: OutputItem,
    },
    /// A part of an item begins.
    #[serde(rename = "response.content_part.added")]
    PartAdded {
        item_id: String,
        output_index: usize,
        content_index: usize,
        part: Part,
    },
    /// A part of an item is whole.
    #[serde(rename = "response.content_part.done")]
    PartDone {
        item_id: String,
        output_index: usize,
        content_index: usize,
        part: Part,
    },
    /// More text.
    #[serde(rename = "response.output_text.delta")]
    TextDelta {
        item_id: String,
        output_index: usize,
        content_index: usize,
        delta: String,
        logprobs: Vec<serde_json::Value>,
    },
    /// The text is whole.
    #[serde(rename = "response.output_text.done")]
    TextDone {
        item_id: String,
        output_index: usize,
        content_index: usize,
        text: String,
        logprobs: Vec<serde_json::Value>,
    },
    /// More thoughts.
    #[serde(rename = "response.reasoning_text.delta")]
    ReasoningDelta {
        item_id: String,
        output_index: usize,
        content_index: usize,
        delta: String,
    },
    /// The thoughts are whole.
    #[serde(rename = "response.reasoning_text.done")]
    ReasoningDone {
        item_id: String,
        output_index: usize,
        content_index: usize,
        text: String,
    },
    /// More arguments.
    #[serde(rename = "response.function_call_arguments.delta")]
    ArgumentsDelta {
        item_id: String,
        output_index: usize,
        delta: String,
    },
    /// The arguments are whole.
    #[serde(rename = "response.function_call_arguments.done")]
    ArgumentsDone {
        item_id: String,
        output_index: usize,
        name: String,
        arguments: String,
    },
}

impl ResponseEvent {
    /// The name of the event, which is its `type`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Created { .. } => "response.created",
            Self::Queued { .. } => "response.queued",
            Self::InProgress { .. } => "response.in_progress",
            Self::Completed { .. } => "response.completed",
            Self::Incomplete { .. } => "response.incomplete",
            Self::Failed { .. } => "response.failed",
            Self::ItemAdded { .. } => "response.output_item.added",
            Self::ItemDone { .. } => "response.output_item.done",
            Self::PartAdded { .. } => "response.content_part.added",
            Self::PartDone { .. } => "response.content_part.done",
            Self::TextDelta { .. } => "response.output_text.delta",
            Self::TextDone { .. } => "response.output_text.done",
            Self::ReasoningDelta { .. } => "response.reasoning_text.delta",
            Self::ReasoningDone { .. } => "response.reasoning_text.done",
            Self::ArgumentsDelta { .. } => "response.function_call_arguments.delta",
            Self::ArgumentsDone { .. } => "response.function_call_arguments.done",
        }
    }
}
