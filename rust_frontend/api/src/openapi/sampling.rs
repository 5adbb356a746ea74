//! Fields that the generating routes share.

use schemars::JsonSchema;
use serde_json::Value;
use std::collections::BTreeMap;

use super::{Object, TokenId};

/// One string, or several.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum Stop {
    /// One.
    One(#[schemars(length(min = 1))] String),
    /// Several.
    Several(#[schemars(length(max = 4), inner(length(min = 1)))] Vec<String>),
}

/// What is added to a logit.
#[derive(JsonSchema)]
struct Bias(#[schemars(range(min = -100, max = 100))] f64);

/// When to end an output that turns in circles.
#[derive(JsonSchema)]
struct Repetition {
    /// In tokens; 0: no detection.
    #[schemars(range(min = 0, max = 1024))]
    max_pattern_size: Option<u32>,
    /// In tokens, not above the other.
    #[schemars(range(min = 0, max = 1024))]
    min_pattern_size: Option<u32>,
    /// At least 2, where there is detection.
    #[schemars(range(min = 0, max = 1024))]
    min_count: Option<u32>,
}

/// How tokens are drawn.
#[derive(JsonSchema)]
pub(super) struct Draw {
    /// 0 is greedy.
    #[schemars(range(min = 0, max = 1_000_000_000))]
    temperature: Option<f64>,
    /// Above 0, at most 1.
    #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
    top_p: Option<f64>,
    /// At least 1, or 0 or -1 for all.
    #[schemars(range(min = -1))]
    top_k: Option<i64>,
    /// The same seed gives the same tokens.
    seed: Option<i64>,
}

/// How to sample.
#[derive(JsonSchema)]
pub(super) struct Sampling {
    #[schemars(flatten)]
    draw: Draw,
    /// Strings before which the text ends.
    stop: Option<Stop>,
    /// Ids that end the output.
    #[schemars(length(max = 128))]
    stop_token_ids: Option<Vec<TokenId>>,
    /// Go on behind the model's end tokens.
    ignore_eos: Option<bool>,
    /// Tokens less likely than that share of the likeliest are not drawn.
    #[schemars(range(min = 0, max = 1))]
    min_p: Option<f64>,
    /// Subtracted from the logit of a token that stands in the output.
    #[schemars(range(min = -2, max = 2))]
    presence_penalty: Option<f64>,
    /// Subtracted for each time that a token stands in the output.
    #[schemars(range(min = -2, max = 2))]
    frequency_penalty: Option<f64>,
    /// Divides the logits of tokens that stand in prompt or output.
    #[schemars(range(min = 0.000_001, max = 1_000_000))]
    repetition_penalty: Option<f64>,
    /// Tokens before which nothing ends the output.
    #[schemars(range(min = 0))]
    min_tokens: Option<i64>,
    /// By token id, from -100 to 100 each.
    logit_bias: Option<BTreeMap<String, Bias>>,
    /// Texts that do not come.
    #[schemars(length(max = 128), inner(length(min = 1)))]
    bad_words: Option<Vec<String>>,
    /// Nothing else is drawn.
    #[schemars(length(min = 1))]
    allowed_token_ids: Option<Vec<TokenId>>,
    /// When to end an output that turns in circles.
    repetition_detection: Option<Repetition>,
    /// Most tokens of thoughts; -1: no limit.
    #[schemars(range(min = -1))]
    thinking_token_budget: Option<i64>,
    /// The marker behind which thoughts begin, where it is not the model's own.
    thinking_start_token_ids: Option<Vec<TokenId>>,
    /// The marker that ends thoughts.
    thinking_end_token_ids: Option<Vec<TokenId>>,
    /// Tokens between two events of a stream.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    stream_interval: Option<u32>,
    /// Whether the stop string that ends the text is part of it.
    include_stop_str_in_output: Option<bool>,
    /// Whether special tokens are left out of the text.
    skip_special_tokens: Option<bool>,
}

/// An end of a text.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum Side {
    Left,
    Right,
}

/// How a text that is too long is cut.
#[derive(JsonSchema)]
pub(super) struct Truncated {
    /// Tokens that are kept; -1: as many as the model takes, before what the output needs. 0 is refused.
    #[schemars(range(min = -1), extend("not" = {"const": 0}))]
    truncate_prompt_tokens: Option<i64>,
    /// Which end is cut off; by default the left one of prompts, the right one of texts that become vectors.
    truncation_side: Option<Side>,
}

/// How many outputs, and which log probabilities.
#[derive(JsonSchema)]
pub(super) struct Told {
    #[schemars(flatten)]
    truncated: Truncated,
    /// Outputs for each prompt.
    #[schemars(range(min = 1, max = 128))]
    n: Option<u32>,
    /// Log probabilities of the prompt's tokens, with that many alternatives; -1: all.
    #[schemars(range(min = -1))]
    prompt_logprobs: Option<i64>,
    /// Log probabilities of these tokens in place of the likeliest.
    logprob_token_ids: Option<Vec<TokenId>>,
    /// Whether log probabilities name tokens by their ids, as `token_id:7`.
    return_tokens_as_token_ids: Option<bool>,
}

/// Who is served when, and what is shared.
#[derive(JsonSchema)]
pub(super) struct Scheduling {
    /// Lower is served earlier; other than 0 it needs `--scheduling-policy priority`.
    priority: Option<i64>,
    /// Cached prefixes are shared only between requests of one salt.
    #[schemars(length(min = 1, max = 1024))]
    cache_salt: Option<String>,
    /// Which session the request belongs to: one engine best serves all of it.
    #[schemars(length(min = 1, max = 256))]
    session_id: Option<String>,
    /// The data-parallel rank that must serve the request; the header X-data-parallel-rank goes before it.
    #[schemars(range(min = 0, max = 4_294_967_295_u32))]
    data_parallel_rank: Option<u32>,
}

/// A search in place of a draw.
#[derive(JsonSchema)]
pub(super) struct Beam {
    /// Whether to look for the `n` likeliest outputs.
    use_beam_search: Option<bool>,
    /// A sum of log probabilities is divided by the number of tokens to this power.
    #[schemars(range(min = -10, max = 10))]
    length_penalty: Option<f64>,
}

/// The kind of an output's form.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum FormatKind {
    Text,
    JsonObject,
    JsonSchema,
    StructuralTag,
}

/// What the output must be, as OpenAI writes it; `json_schema` holds `schema`.
#[derive(JsonSchema)]
struct ResponseFormat {
    #[schemars(rename = "type")]
    kind: FormatKind,
    /// With the kind `json_schema`: an object with `name` and `schema`.
    json_schema: Option<Value>,
}

/// What the output must be, as vLLM writes it: exactly one of the first six.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct StructuredOutputs {
    /// A JSON schema.
    json: Option<Value>,
    /// An expression that matches the whole text.
    #[schemars(length(min = 1))]
    regex: Option<String>,
    /// One of these texts.
    #[schemars(length(min = 1), inner(length(min = 1)))]
    choice: Option<Vec<String>>,
    /// A grammar, EBNF or Lark.
    #[schemars(length(min = 1))]
    grammar: Option<String>,
    /// true: any JSON object.
    json_object: Option<bool>,
    /// Text with tagged parts.
    structural_tag: Option<Value>,
    /// JSON without white space between its tokens.
    disable_any_whitespace: Option<bool>,
    /// Objects have no properties but those that their schema names.
    disable_additional_properties: Option<bool>,
    /// The white space that may stand in JSON.
    whitespace_pattern: Option<String>,
    /// Has no effect.
    disable_fallback: Option<Value>,
}

/// What the output must be.
#[derive(JsonSchema)]
pub(super) struct Structured {
    response_format: Option<ResponseFormat>,
    structured_outputs: Option<StructuredOutputs>,
}

/// The fields of a tool's function.
#[derive(JsonSchema)]
pub(super) struct Function {
    #[schemars(length(min = 1))]
    name: String,
    /// For the model.
    description: Option<String>,
    /// A JSON schema.
    parameters: Option<Object>,
    /// Whether calls are forced to be instances of the schema.
    strict: Option<bool>,
}

/// A tool of one's own.
#[derive(JsonSchema)]
pub(super) struct Tool {
    #[schemars(rename = "type", extend("const" = "function"))]
    kind: String,
    function: Function,
}

/// Which calls are wanted.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(super) enum ToolChoiceBody {
    /// None, whatever the model likes, or at least one.
    Word(ToolWord),
    /// This one.
    Named(NamedTool),
}

/// Which calls are wanted, in a word.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
pub(super) enum ToolWord {
    None,
    Auto,
    Required,
}

/// A tool by its name.
#[derive(JsonSchema)]
pub(super) struct NamedTool {
    #[schemars(rename = "type", extend("const" = "function"))]
    kind: String,
    function: FunctionName,
}

/// The name of a function.
#[derive(JsonSchema)]
pub(super) struct FunctionName {
    name: String,
}
