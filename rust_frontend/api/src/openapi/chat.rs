//! The body of a chat.

use schemars::JsonSchema;
use serde_json::Value;

use super::Object;
use super::generating::Generating;
use super::sampling::{Tool, ToolChoiceBody};

/// A part of what a message says.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(super) enum TextPart {
    /// A text.
    Text(String),
    /// `{"type": "text", "text": "..."}`.
    Part(Object),
}

/// Text, or parts of it.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(super) enum TextOrParts {
    /// A text.
    Text(String),
    /// Parts.
    Parts(Vec<TextPart>),
}

/// Arguments of a call.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum Arguments {
    /// As JSON text.
    Text(String),
    /// As they are.
    Object(Object),
}

/// The function of a call.
#[derive(JsonSchema)]
struct CalledFunction {
    name: String,
    arguments: Option<Arguments>,
}

/// A call that the assistant made.
#[derive(JsonSchema)]
struct MadeCall {
    function: CalledFunction,
}

/// A message; further fields go to the chat template.
#[derive(JsonSchema)]
pub(super) struct ChatMessage {
    /// "system", "developer", "user", "assistant", "tool" or what the template knows.
    #[schemars(length(min = 1))]
    role: String,
    /// Text, text parts, or null for an assistant.
    content: Option<TextOrParts>,
    /// Of whoever speaks.
    name: Option<String>,
    /// What the assistant thought.
    reasoning: Option<String>,
    /// The older name.
    reasoning_content: Option<String>,
    /// The assistant's calls.
    tool_calls: Option<Vec<MadeCall>>,
    /// The call that a tool answers.
    tool_call_id: Option<String>,
}

/// Under which names an answer carries thoughts.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum ReasoningName {
    Reasoning,
    ReasoningContent,
    Both,
}

/// A conversation to continue.
#[derive(JsonSchema)]
pub struct ChatBody {
    /// The conversation.
    #[schemars(length(min = 1))]
    messages: Vec<ChatMessage>,
    #[schemars(flatten)]
    asked: Asked,
}

/// A conversation.
#[derive(JsonSchema)]
pub(super) struct Conversation(#[schemars(length(min = 1))] Vec<ChatMessage>);

/// Conversations to continue, each by itself; without streams, tools, `echo`, `return_token_ids` and `prompt_logprobs`.
#[derive(JsonSchema)]
pub struct ChatBatchBody {
    /// The conversations.
    #[schemars(length(min = 1, max = 1024))]
    messages: Vec<Conversation>,
    #[schemars(flatten)]
    asked: Asked,
}

/// What is asked of a conversation's answer.
#[derive(JsonSchema)]
struct Asked {
    /// Functions.
    tools: Option<Vec<Tool>>,
    /// Which calls are wanted.
    tool_choice: Option<ToolChoiceBody>,
    /// Whether there may be more than one call.
    parallel_tool_calls: Option<bool>,
    /// Most output tokens.
    #[schemars(range(min = 1))]
    max_completion_tokens: Option<i64>,
    /// The older name.
    #[schemars(range(min = 1))]
    max_tokens: Option<i64>,
    /// Whether tokens come with log probabilities.
    logprobs: Option<bool>,
    /// How many alternatives; -1: all.
    #[schemars(range(min = -1))]
    top_logprobs: Option<i64>,
    /// Whether the answer carries thoughts.
    include_reasoning: Option<bool>,
    /// Under which names.
    reasoning_field: Option<ReasoningName>,
    /// Goes to the template.
    reasoning_effort: Option<String>,
    /// Further variables of the template.
    chat_template_kwargs: Option<Object>,
    /// A template of one's own; needs `--trust-request-chat-template`.
    chat_template: Option<String>,
    /// Whether the prompt ends with the head of an assistant's turn.
    add_generation_prompt: Option<bool>,
    /// Whether the last message is continued.
    continue_final_message: Option<bool>,
    /// Documents for retrieval templates.
    documents: Option<Vec<Value>>,
    /// Whether the text of a last message of the assistant stands before the answer.
    echo: Option<bool>,
    #[schemars(flatten)]
    generating: Generating,
}
