//! Bodies of the routes between text and token ids, and the answer to an event of a stream.

use schemars::JsonSchema;
use serde_json::Value;

use super::{ChatBody, CompletionBody, Object, TokenId};
/// A text to tokenize.
#[derive(JsonSchema)]
struct TokenizeText {
    /// A served name; the first one if absent.
    model: Option<String>,
    prompt: String,
    /// Whether the tokenizer adds its special tokens.
    add_special_tokens: Option<bool>,
    /// Whether the answer has the tokens as text too.
    return_token_strs: Option<bool>,
}

/// A conversation to tokenize.
#[derive(JsonSchema)]
struct TokenizeChat {
    /// Whether the answer has the tokens as text too.
    return_token_strs: Option<bool>,
    #[schemars(flatten)]
    chat: ChatBody,
}

/// A text or a conversation.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum ToTokenize {
    Text(TokenizeText),
    Chat(Box<TokenizeChat>),
}

/// What to tokenize.
#[derive(JsonSchema)]
pub struct TokenizeBody(ToTokenize);

/// Token ids to turn into text.
#[derive(JsonSchema)]
pub struct DetokenizeBody {
    /// A served name; the first one if absent.
    model: Option<String>,
    tokens: Vec<TokenId>,
    /// Whether special tokens are left out.
    skip_special_tokens: Option<bool>,
}

/// What a caller wants of a rendered prompt.
#[derive(JsonSchema)]
struct Wanted {
    /// Whether to say which characters each token stands for.
    return_token_offsets: Option<bool>,
    /// Whether to say which tokens the assistant said.
    return_assistant_tokens_mask: Option<bool>,
    /// Whether to give the prompt's text.
    return_prompt_text: Option<bool>,
    /// Passed on.
    kv_transfer_params: Option<Object>,
    /// Passed on.
    ec_transfer_params: Option<Object>,
    /// Passed on.
    spaces_between_special_tokens: Option<Value>,
}

/// A conversation to render.
#[derive(JsonSchema)]
pub struct RenderChatBody {
    #[schemars(flatten)]
    chat: ChatBody,
    #[schemars(flatten)]
    wanted: Wanted,
}

/// Prompts to render.
#[derive(JsonSchema)]
pub struct RenderCompletionBody {
    #[schemars(flatten)]
    completion: CompletionBody,
    #[schemars(flatten)]
    wanted: Wanted,
}

/// A stop id or a stop string.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum StopReasonBody {
    Token(TokenId),
    Text(String),
}

/// One output, or what it gained.
#[derive(JsonSchema)]
struct GeneratedChoiceBody {
    #[schemars(range(min = 0, max = 1023))]
    index: Option<u32>,
    token_ids: Option<Vec<TokenId>>,
    finish_reason: Option<String>,
    stop_reason: Option<StopReasonBody>,
}

/// Tokens counted.
#[derive(JsonSchema)]
struct UsageBody {
    #[schemars(range(min = 0))]
    prompt_tokens: Option<i64>,
    #[schemars(range(min = 0))]
    completion_tokens: Option<i64>,
    prompt_tokens_details: Option<Object>,
}

/// An answer of `/inference/v1/generate`, or an event of it.
#[derive(JsonSchema)]
struct GeneratedBody {
    #[schemars(regex(pattern = "^[A-Za-z0-9_.:-]{1,128}$"))]
    request_id: Option<String>,
    /// Unix seconds.
    #[schemars(range(min = 0))]
    created: Option<i64>,
    #[schemars(length(max = 1024))]
    choices: Vec<GeneratedChoiceBody>,
    usage: Option<UsageBody>,
    /// "tokens".
    output_mode: Option<String>,
}

/// What is known of one output.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ChoiceStateBody {
    #[schemars(range(min = 0, max = 4_294_967_295_u32))]
    index: u32,
    token_ids: Vec<i32>,
    #[schemars(default)]
    ended: bool,
}

/// What the event before gave back.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct StreamStateBody {
    id: String,
    created: u64,
    choices: Vec<ChoiceStateBody>,
}

/// An event of a stream, and what the event before it gave back.
#[derive(JsonSchema)]
struct DerenderEvent {
    model: Option<String>,
    #[schemars(extend("const" = true))]
    stream: bool,
    generate_chunk: GeneratedBody,
    /// The prompt's length.
    #[schemars(range(min = 0))]
    prompt_tokens: Option<i64>,
    /// Its ids, or the last of them.
    prompt_token_ids: Option<Vec<TokenId>>,
    stream_state: Option<StreamStateBody>,
    /// The request that was rendered, of a chat.
    chat_request: Option<Object>,
    /// Of a completion.
    completion_request: Option<Object>,
}

/// The answer to a chat.
#[derive(JsonSchema)]
struct DerenderChat {
    model: Option<String>,
    /// The request that was rendered.
    chat_request: Option<Object>,
    stream: Option<bool>,
    generate_response: GeneratedBody,
    /// The prompt's length.
    #[schemars(range(min = 0))]
    prompt_tokens: Option<i64>,
    /// Its ids, or the last of them.
    prompt_token_ids: Option<Vec<TokenId>>,
}

/// The answers to a completion's prompts.
#[derive(JsonSchema)]
struct DerenderCompletion {
    model: Option<String>,
    /// The request that was rendered.
    completion_request: Option<Object>,
    stream: Option<bool>,
    #[schemars(length(min = 1))]
    generate_responses: Vec<GeneratedBody>,
    /// The length of each prompt.
    prompt_tokens: Option<Vec<Option<u64>>>,
    /// The ids of each prompt, or the last of them.
    prompt_token_ids: Option<Vec<Option<Vec<TokenId>>>>,
}

/// What the engine said: whole, or an event.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum ChatSaid {
    Whole(Box<DerenderChat>),
    Event(Box<DerenderEvent>),
}

/// What the engine said to a chat.
#[derive(JsonSchema)]
pub struct DerenderChatBody(ChatSaid);

/// What the engine said: whole, or an event.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum CompletionSaid {
    Whole(Box<DerenderCompletion>),
    Event(Box<DerenderEvent>),
}

/// What the engine said to a completion.
#[derive(JsonSchema)]
pub struct DerenderCompletionBody(CompletionSaid);
