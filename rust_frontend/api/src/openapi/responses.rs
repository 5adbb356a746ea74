//! The body of a response.

use std::collections::BTreeMap;

use schemars::JsonSchema;

use super::Object;
use super::sampling::{Function, Sampling, Scheduling, Structured, ToolWord};

/// An item: a message, reasoning, `function_call` or `function_call_output`.
#[derive(JsonSchema)]
struct Item {
    /// May be absent in a message.
    #[schemars(rename = "type")]
    kind: Option<String>,
}

/// A text, or items of a conversation.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum Input {
    /// A user's message.
    Text(String),
    /// Items.
    Items(#[schemars(length(min = 1))] Vec<Item>),
}

/// A function.
#[derive(JsonSchema)]
struct ResponseTool {
    #[schemars(rename = "type", extend("const" = "function"))]
    kind: String,
    #[schemars(flatten)]
    function: Function,
}

/// The kind of a choice.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum ChosenKind {
    Function,
    AllowedTools,
}

/// A function by its name, or those that are allowed.
#[derive(JsonSchema)]
struct ChosenTool {
    #[schemars(rename = "type")]
    kind: ChosenKind,
}

/// Which calls are wanted.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum ResponseToolChoice {
    /// None, whatever the model likes, or at least one.
    Word(ToolWord),
    /// These.
    Chosen(ChosenTool),
}

/// The kind of a text's form.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum TextKind {
    Text,
    JsonObject,
    JsonSchema,
}

/// The form of the text.
#[derive(JsonSchema)]
struct TextFormat {
    #[schemars(rename = "type")]
    kind: TextKind,
}

/// The form of the text.
#[derive(JsonSchema)]
struct TextBody {
    format: Option<TextFormat>,
    /// Has no effect.
    verbosity: Option<String>,
}

/// How hard to think.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum ReasoningEffort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    XHigh,
    Max,
}

/// What a request says about thoughts.
#[derive(JsonSchema)]
struct ReasoningBody {
    effort: Option<ReasoningEffort>,
    /// Has no effect: there are no summaries.
    summary: Option<String>,
}

/// What else the answer holds.
#[derive(JsonSchema)]
enum Include {
    #[schemars(rename = "reasoning.encrypted_content")]
    Reasoning,
    #[schemars(rename = "message.output_text.logprobs")]
    Logprobs,
    #[schemars(rename = "message.input_image.image_url")]
    Image,
    #[schemars(rename = "file_search_call.results")]
    FileSearch,
    #[schemars(rename = "web_search_call.results")]
    WebSearch,
    #[schemars(rename = "web_search_call.action.sources")]
    WebSources,
    #[schemars(rename = "code_interpreter_call.outputs")]
    Code,
    #[schemars(rename = "computer_call_output.output.image_url")]
    Computer,
}

/// What to do with a conversation that is too long.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum Truncation {
    Auto,
    Disabled,
}

/// A value of `metadata`.
#[derive(JsonSchema)]
struct MetadataValue(#[schemars(length(max = 512))] String);

/// A response to create.
#[derive(JsonSchema)]
pub struct ResponsesBody {
    /// A served name; the first one if absent.
    model: Option<String>,
    /// What is said.
    input: Input,
    /// A system message in front.
    instructions: Option<String>,
    /// The response that this one goes on from.
    previous_response_id: Option<String>,
    /// Whether it can be found again.
    store: Option<bool>,
    /// Whether it runs without its client.
    background: Option<bool>,
    /// Whether to answer as a stream of events.
    stream: Option<bool>,
    /// Has no effect.
    stream_options: Option<Object>,
    /// Functions.
    tools: Option<Vec<ResponseTool>>,
    /// Which calls are wanted.
    tool_choice: Option<ResponseToolChoice>,
    /// Whether there may be more than one call.
    parallel_tool_calls: Option<bool>,
    /// Told back; there are no tools that it counts.
    #[schemars(range(min = 1))]
    max_tool_calls: Option<i64>,
    /// The form of the text.
    text: Option<TextBody>,
    /// How hard to think.
    reasoning: Option<ReasoningBody>,
    /// Whether the answer carries thoughts.
    include_reasoning: Option<bool>,
    /// What else the answer holds.
    include: Option<Vec<Include>>,
    /// How many alternatives each token of the text comes with.
    #[schemars(range(min = 0, max = 20))]
    top_logprobs: Option<i64>,
    /// Most output tokens.
    #[schemars(range(min = 1))]
    max_output_tokens: Option<i64>,
    /// What to do with a conversation that is too long.
    truncation: Option<Truncation>,
    /// Told back.
    #[schemars(extend("maxProperties" = 16))]
    metadata: Option<BTreeMap<String, MetadataValue>>,
    /// Told back.
    prompt_cache_key: Option<String>,
    /// Has no effect.
    prompt_cache_retention: Option<String>,
    /// Told back.
    safety_identifier: Option<String>,
    /// Has no effect.
    service_tier: Option<String>,
    /// For the log.
    user: Option<String>,
    /// Further variables of the template.
    chat_template_kwargs: Option<Object>,
    #[schemars(flatten)]
    sampling: Sampling,
    #[schemars(flatten)]
    scheduling: Scheduling,
    #[schemars(flatten)]
    structured: Structured,
}
