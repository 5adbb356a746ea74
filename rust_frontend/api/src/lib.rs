//! Bodies of the OpenAI and Anthropic routes: requests, answers, chunks and errors. Types and validation only; no I/O.
//!
//! A request is read in two steps, so that an unknown model is found before anything else is judged:
//! [`Body::parse`] takes the bytes and [`Body::model`] names the model; [`ChatRequest::from_body`] and
//! [`CompletionRequest::from_body`] then check every field. Fields that nobody knows are named in `ignored`; fields that OpenAI or
//! vLLM define and octavo does not implement are refused by name when they ask for something (see `unsupported`).

mod beam;
mod body;
mod calls;
mod chat;
mod completion;
mod derender;
mod error;
mod extras;
mod field;
mod generate;
mod logprobs;
mod message;
mod messages;
mod models;
mod openapi;
mod pooling;
mod reasoning;
mod render;
mod response;
mod responses;
mod sampling;
mod scheduling;
mod seen;
mod shared;
mod structured;
mod tokenize;
mod tools;
mod truncation;
mod turns;
mod unsupported;

pub use beam::BeamFields;
pub use body::Body;
pub use calls::{FunctionCall, FunctionDelta, ToolCall, ToolCallDelta};
pub use chat::{ChatRequest, TemplateFields};
pub use completion::{CompletionRequest, Prompt};
pub use derender::{
    ChoiceState, DerenderInput, DerenderRequest, Derendered, Generated, GeneratedChoice,
    PromptHint, StreamState,
};
pub use error::{ApiError, ErrorBody, ErrorKind, ErrorObject};
pub use extras::{ExtraFields, RepetitionFields, ThinkingFields};
pub use generate::{
    GenerateChoice, GenerateRequest, GenerateResponse, RenderedRequest, StreamOptions,
    checked_request_id,
};
pub use logprobs::{
    ChatLogprob, ChatLogprobs, CompletionLogprobs, LEAST, PromptLogprobs, TopLogprob,
};
pub use message::{Content, Message};
pub use messages::{
    AnthropicError, AnthropicErrorBody, BlockDelta, ContentBlock, EndReason, MessageAnswer,
    MessageDelta, MessageEvent, MessagesRequest, MessagesUsage, TokenCount,
};
pub use models::{ModelCard, ModelList, served_name};
pub use openapi::{
    ChatBatchBody, ChatBody, ClassifyBody, CohereBody, CompletionBody, CountBody, DerenderChatBody,
    DerenderCompletionBody, DetokenizeBody, EmbedBody, GenerateBody, LikelihoodBody, MessagesBody,
    PoolBody, RenderChatBody, RenderCompletionBody, RerankBody, ResponsesBody, Schemas, ScoreBody,
    TokenizeBody,
};
pub use pooling::{
    Classification, ClassifyAnswer, ClassifyRequest, CohereEmbedAnswer, CohereEmbedRequest,
    CohereEmbeddings, CohereMeta, CohereType, CohereUnits, CohereVersion, EmbedDtype,
    EmbeddingAnswer, EmbeddingItem, Encoding, Endianness, GenerativeScoringRequest, MAX_TEXTS,
    Pair, PooledAnswer, PooledData, PooledInput, PooledItem, PoolingList, PoolingOptions,
    PoolingUsage, RerankAnswer, RerankDocument, RerankRequest, RerankResult, ScoreAnswer,
    ScoreItem, ScoreRequest, VectorFormat, VectorsRequest,
};
pub use reasoning::{ReasoningField, ReasoningFields};
pub use render::RenderFields;
pub use response::{
    AssistantMessage, ChatChoice, ChatChunk, ChatChunkChoice, ChatCompletion, ChatDelta,
    Completion, CompletionChoice, CompletionTokensDetails, FinishReason, PromptTokensDetails,
    RequestTiming, StopReason, Usage,
};
pub use responses::{
    IncompleteDetails, InputItems, InputTokenCount, InputTokensDetails, ItemStatus, NumberedEvent,
    OutputItem, OutputPart, OutputTokensDetails, Part, ReasoningEcho, ReasoningPart,
    ResponseDeleted, ResponseEvent, ResponseFailure, ResponseObject, ResponseStatus, ResponseUsage,
    ResponsesRequest, carried, id_prefix, referenced,
};
pub use sampling::SamplingFields;
pub use scheduling::SchedulingFields;
pub use schemars::JsonSchema;
pub use seen::SeenMessages;
pub use shared::SharedMessage;
pub use structured::{Structure, StructuredFields};
pub use tokenize::{
    DetokenizeRequest, DetokenizeResponse, TokenizeInput, TokenizeRequest, TokenizeResponse,
};
pub use tools::{ToolChoice, ToolFields};
pub use truncation::Truncation;
