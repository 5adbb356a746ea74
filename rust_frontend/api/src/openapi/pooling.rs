//! Bodies of the routes of vectors, labels and scores.

use schemars::JsonSchema;

use super::chat::{ChatMessage, Conversation};
use super::sampling::{Scheduling, Tool, Truncated};
use super::{Object, TokenId};

/// One text of several.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum OneInput {
    /// A text.
    Text(String),
    /// Token ids.
    Tokens(#[schemars(length(min = 1))] Vec<TokenId>),
}

/// A text, or several.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum Inputs {
    /// A text.
    Text(String),
    /// Token ids.
    Tokens(#[schemars(length(min = 1))] Vec<TokenId>),
    /// Several.
    Several(#[schemars(length(min = 1, max = 2048))] Vec<OneInput>),
}

/// Conversations, each rendered as a chat's.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum Conversations {
    /// One.
    One(#[schemars(length(min = 1))] Vec<ChatMessage>),
    /// Several.
    Several(#[schemars(length(min = 1, max = 2048))] Vec<Conversation>),
}

/// How texts are cut, and what is made of the numbers.
#[derive(JsonSchema)]
struct Options {
    /// A served name; the first one if absent.
    model: Option<String>,
    #[schemars(flatten)]
    truncated: Truncated,
    /// Vectors of length 1, or probabilities; as the model does by default.
    use_activation: Option<bool>,
    /// An older name of it.
    normalize: Option<bool>,
    /// An older name of it.
    softmax: Option<bool>,
    /// An older name of it.
    activation: Option<bool>,
    /// Whether the tokenizer adds its special tokens.
    add_special_tokens: Option<bool>,
    /// For the log.
    user: Option<String>,
    #[schemars(flatten)]
    scheduling: Scheduling,
}

/// Texts.
#[derive(JsonSchema)]
struct Texts {
    /// What is read.
    input: Inputs,
    #[schemars(flatten)]
    options: Options,
}

/// Conversations in their place.
#[derive(JsonSchema)]
struct Chats {
    /// What is read.
    messages: Conversations,
    /// Whether each ends with the head of an assistant's turn.
    add_generation_prompt: Option<bool>,
    /// Whether the last message is continued.
    continue_final_message: Option<bool>,
    /// A template of one's own; needs `--trust-request-chat-template`.
    chat_template: Option<String>,
    /// Further variables of the template.
    chat_template_kwargs: Option<Object>,
    /// Documents for retrieval templates.
    documents: Option<Vec<serde_json::Value>>,
    /// Functions.
    tools: Option<Vec<Tool>>,
    #[schemars(flatten)]
    options: Options,
}

/// The form of an answer with vectors.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum EncodingWord {
    Float,
    Base64,
    Bytes,
    BytesOnly,
}

/// The type of numbers in base64 and bytes.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum DtypeWord {
    Float32,
    Float16,
    Bfloat16,
}

/// The order of a number's bytes.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum OrderWord {
    Native,
    Little,
    Big,
}

/// How vectors are written.
#[derive(JsonSchema)]
struct Written {
    /// Numbers of a vector, where fewer than the model's are wanted.
    #[schemars(range(min = 1))]
    dimensions: Option<i64>,
    /// The form of the answer; bytes make an answer that is no JSON.
    encoding_format: Option<EncodingWord>,
    /// The type of numbers in base64 and bytes.
    embed_dtype: Option<DtypeWord>,
    /// The order of their bytes.
    endianness: Option<OrderWord>,
}

/// Texts whose vectors are wanted.
#[derive(JsonSchema)]
struct EmbedTexts {
    #[schemars(flatten)]
    texts: Texts,
    #[schemars(flatten)]
    written: Written,
}

/// Conversations whose vectors are wanted.
#[derive(JsonSchema)]
struct EmbedChats {
    #[schemars(flatten)]
    chats: Chats,
    #[schemars(flatten)]
    written: Written,
}

/// Texts or conversations.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum ToEmbed {
    Texts(Box<EmbedTexts>),
    Chats(Box<EmbedChats>),
}

/// What becomes vectors.
#[derive(JsonSchema)]
pub struct EmbedBody(ToEmbed);

/// Texts or conversations.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum ToClassify {
    Texts(Box<Texts>),
    Chats(Box<Chats>),
}

/// What gets labels.
#[derive(JsonSchema)]
pub struct ClassifyBody(ToClassify);

/// What a model is to pool.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum Task {
    Embed,
    Classify,
    TokenEmbed,
    TokenClassify,
}

/// Texts to pool.
#[derive(JsonSchema)]
struct PoolTexts {
    /// The model's first if absent.
    task: Option<Task>,
    #[schemars(flatten)]
    texts: EmbedTexts,
}

/// Conversations to pool.
#[derive(JsonSchema)]
struct PoolChats {
    /// The model's first if absent.
    task: Option<Task>,
    #[schemars(flatten)]
    chats: EmbedChats,
}

/// Texts or conversations.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum ToPool {
    Texts(Box<PoolTexts>),
    Chats(Box<PoolChats>),
}

/// What is pooled.
#[derive(JsonSchema)]
pub struct PoolBody(ToPool);

/// A form in which Cohere's clients want vectors.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum CohereForm {
    Float,
    Base64,
    Binary,
    Ubinary,
}

/// Whether and where texts are cut.
#[derive(JsonSchema)]
#[schemars(rename_all = "UPPERCASE")]
enum Cut {
    None,
    Start,
    End,
}

/// Texts that become vectors, as Cohere's clients write it.
#[derive(JsonSchema)]
pub struct CohereBody {
    /// A served name; the first one if absent.
    model: Option<String>,
    /// What is read.
    #[schemars(length(min = 1, max = 2048))]
    texts: Vec<String>,
    /// What the texts are for, such as `search_query`.
    input_type: Option<String>,
    /// Numbers of a vector, where fewer than the model's are wanted.
    #[schemars(range(min = 1))]
    output_dimension: Option<i64>,
    /// Floats if absent.
    embedding_types: Option<Vec<CohereForm>>,
    /// Tokens that are kept of a text.
    #[schemars(range(min = 1))]
    max_tokens: Option<i64>,
    /// At the end if absent.
    truncate: Option<Cut>,
    /// Lower is served earlier; other than 0 it needs `--scheduling-policy priority`.
    priority: Option<i64>,
}

/// An object with a text.
#[derive(JsonSchema)]
struct TextObject {
    text: String,
}

/// A text, as it is or in an object.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum PairText {
    /// A text.
    Text(String),
    /// The same.
    Object(TextObject),
}

/// A text, or several.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum PairTexts {
    /// One.
    One(PairText),
    /// Several.
    Several(#[schemars(length(min = 1, max = 2048))] Vec<PairText>),
}

/// What a pair is judged by.
#[derive(JsonSchema)]
struct Judged {
    /// For the template of pairs.
    instruction: Option<String>,
    #[schemars(flatten)]
    options: Options,
}

/// Documents to rank.
#[derive(JsonSchema)]
pub struct RerankBody {
    /// What they are held against.
    query: PairText,
    /// What is ranked.
    documents: PairTexts,
    /// Documents in the answer; 0: all.
    #[schemars(range(min = 0))]
    top_n: Option<i64>,
    /// Whether the answer repeats the documents.
    return_documents: Option<bool>,
    /// Tokens of a document that count; 0: all.
    #[schemars(range(min = 0))]
    max_tokens_per_doc: Option<i64>,
    #[schemars(flatten)]
    judged: Judged,
}

/// Queries and documents: one query for all, or one for each.
#[derive(JsonSchema)]
struct QueriesDocuments {
    queries: PairTexts,
    documents: PairTexts,
    #[schemars(flatten)]
    judged: Judged,
}

/// The same under other names.
#[derive(JsonSchema)]
struct QueriesItems {
    queries: PairTexts,
    items: PairTexts,
    #[schemars(flatten)]
    judged: Judged,
}

/// The same under other names.
#[derive(JsonSchema)]
struct DataPairs {
    data_1: PairTexts,
    data_2: PairTexts,
    #[schemars(flatten)]
    judged: Judged,
}

/// The same under other names.
#[derive(JsonSchema)]
struct TextPairs {
    text_1: PairTexts,
    text_2: PairTexts,
    #[schemars(flatten)]
    judged: Judged,
}

/// Pairs, under one of four pairs of names.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum Pairs {
    Queries(Box<QueriesDocuments>),
    Items(Box<QueriesItems>),
    Data(Box<DataPairs>),
    Texts(Box<TextPairs>),
}

/// Pairs to score.
#[derive(JsonSchema)]
pub struct ScoreBody(Pairs);

/// Items to score by what a model that makes tokens would say next.
#[derive(JsonSchema)]
pub struct LikelihoodBody {
    /// A served name; the first one if absent.
    model: Option<String>,
    /// What stands in every prompt.
    query: OneInput,
    /// What stands in one prompt each.
    #[schemars(length(min = 1, max = 2048))]
    items: Vec<OneInput>,
    /// Tokens that may come next, each once; the score is the first one's.
    #[schemars(length(min = 1, max = 128))]
    label_token_ids: Vec<TokenId>,
    /// Whether probabilities are of the labels alone.
    apply_softmax: Option<bool>,
    /// Whether the item stands before the query.
    item_first: Option<bool>,
    /// Whether the tokenizer adds its special tokens to what comes first.
    add_special_tokens: Option<bool>,
    #[schemars(flatten)]
    scheduling: Scheduling,
}
