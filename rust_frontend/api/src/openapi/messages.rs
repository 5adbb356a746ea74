//! The bodies of Anthropic's Messages.

use schemars::JsonSchema;

use super::Object;
use super::sampling::{Draw, Scheduling};

/// Who speaks.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum AnthropicRole {
    User,
    Assistant,
    System,
}

/// A block: text, thinking, `tool_use` or `tool_result`.
#[derive(JsonSchema)]
struct Block {
    #[schemars(rename = "type")]
    kind: String,
}

/// Text, or blocks.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum TextOrBlocks {
    /// A text.
    Text(String),
    /// Blocks.
    Blocks(Vec<Block>),
}

/// A message.
#[derive(JsonSchema)]
struct AnthropicMessage {
    role: AnthropicRole,
    content: TextOrBlocks,
}

/// A tool of one's own.
#[derive(JsonSchema)]
struct AnthropicTool {
    /// "custom", or absent.
    #[schemars(rename = "type")]
    kind: Option<String>,
    #[schemars(length(min = 1))]
    name: String,
    /// For the model.
    description: Option<String>,
    /// A JSON schema.
    input_schema: Object,
    /// Whether calls are forced to be instances of the schema.
    strict: Option<bool>,
    /// Not supported: true is refused.
    defer_loading: Option<bool>,
}

/// The kind of a choice.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum AnthropicChoiceKind {
    Auto,
    Any,
    Tool,
    None,
}

/// Which calls are wanted.
#[derive(JsonSchema)]
struct AnthropicToolChoice {
    #[schemars(rename = "type")]
    kind: AnthropicChoiceKind,
    /// Whether the answer ends with the first call.
    disable_parallel_tool_use: Option<bool>,
}

/// Whether the model is told to think.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum ThinkingKind {
    Enabled,
    Adaptive,
    Disabled,
}

/// What a request says about thoughts.
#[derive(JsonSchema)]
struct ThinkingBody {
    #[schemars(rename = "type")]
    kind: ThinkingKind,
    /// Required with `enabled`, less than `max_tokens`.
    #[schemars(range(min = 1))]
    budget_tokens: Option<i64>,
    /// "omitted" leaves thoughts out of the answer.
    display: Option<String>,
}

/// How hard to think.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum Effort {
    Low,
    Medium,
    High,
    XHigh,
    Max,
}

/// A form of the output.
#[derive(JsonSchema)]
struct OutputFormat {
    #[schemars(rename = "type", extend("const" = "json_schema"))]
    kind: String,
}

/// The form of the output, and how hard to think.
#[derive(JsonSchema)]
struct OutputConfig {
    effort: Option<Effort>,
    format: Option<OutputFormat>,
}

/// `user_id`.
#[derive(JsonSchema)]
struct Metadata {
    user_id: Option<String>,
}

/// What both routes read.
#[derive(JsonSchema)]
struct Common {
    /// A served name; the first one if absent.
    model: Option<String>,
    /// The conversation.
    #[schemars(length(min = 1))]
    messages: Vec<AnthropicMessage>,
    /// What stands in front.
    system: Option<TextOrBlocks>,
    /// Tools of one's own.
    tools: Option<Vec<AnthropicTool>>,
    /// Which calls are wanted.
    tool_choice: Option<AnthropicToolChoice>,
    /// Whether to think.
    thinking: Option<ThinkingBody>,
    /// Form and effort.
    output_config: Option<OutputConfig>,
    /// The older name of `output_config.format`.
    output_format: Option<OutputFormat>,
    /// Strings before which the text ends.
    #[schemars(length(max = 4), inner(length(min = 1)))]
    stop_sequences: Option<Vec<String>>,
    #[schemars(flatten)]
    draw: Draw,
    /// For the log.
    metadata: Option<Metadata>,
    /// Whether to answer as a stream of events.
    stream: Option<bool>,
    /// Further variables of the template.
    chat_template_kwargs: Option<Object>,
    /// Has no effect: prefixes are cached by themselves.
    cache_control: Option<Object>,
    /// Has no effect.
    service_tier: Option<String>,
    #[schemars(flatten)]
    scheduling: Scheduling,
}

/// A conversation to continue.
#[derive(JsonSchema)]
pub struct MessagesBody {
    /// Most output tokens.
    #[schemars(range(min = 1))]
    max_tokens: i64,
    #[schemars(flatten)]
    common: Common,
}

/// A conversation to count.
#[derive(JsonSchema)]
pub struct CountBody {
    /// Has no effect.
    #[schemars(range(min = 1))]
    max_tokens: Option<i64>,
    #[schemars(flatten)]
    common: Common,
}
