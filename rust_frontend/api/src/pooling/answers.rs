//! Answers with vectors, labels and scores.

use schemars::JsonSchema;
use serde::Serialize;

/// Tokens counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct PoolingUsage {
    /// Of all texts.
    pub prompt_tokens: usize,
    /// The same.
    pub total_tokens: usize,
}

impl PoolingUsage {
    /// So many tokens.
    #[must_use]
    pub fn new(tokens: usize) -> Self {
        Self {
            prompt_tokens: tokens,
            total_tokens: tokens,
        }
    }
}

/// One vector, or what stands for it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum PooledData {
    /// A vector.
    Vector(Vec<f32>),
    /// A vector for each token.
    Vectors(Vec<Vec<f32>>),
    /// Base64 of either.
    Base64(String),
}

/// What each text or pair gave.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ListOf{T}")]
pub struct PoolingList<T> {
    /// Of the answer.
    pub id: String,
    /// "list".
    pub object: &'static str,
    /// Unix seconds.
    pub created: u64,
    /// As the client named it.
    pub model: String,
    /// One for each text or pair, in the order of the request.
    pub data: Vec<T>,
    /// Tokens of all of them.
    pub usage: PoolingUsage,
}

/// The answer of `/v1/embeddings`; its id is such as `embd-…`.
pub type EmbeddingAnswer = PoolingList<EmbeddingItem>;

/// One embedding.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct EmbeddingItem {
    /// Of the text.
    pub index: usize,
    /// "embedding".
    pub object: &'static str,
    /// The vector.
    pub embedding: PooledData,
}

/// The answer of `/pooling`; its id is such as `pool-…`.
pub type PooledAnswer = PoolingList<PooledItem>;

/// What one text gave.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PooledItem {
    /// Of the text.
    pub index: usize,
    /// "pooling".
    pub object: &'static str,
    /// The vector, or one for each token.
    pub data: PooledData,
}

/// The answer of `/classify`; its id is such as `classify-…`.
pub type ClassifyAnswer = PoolingList<Classification>;

/// One text's labels.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Classification {
    /// Of the text.
    pub index: usize,
    /// The name of the label with the largest value.
    pub label: Option<String>,
    /// Of each label, in the model's order.
    pub probs: Vec<f32>,
    /// Labels.
    pub num_classes: usize,
}

/// The answer of `/score`; its id is such as `score-…`.
pub type ScoreAnswer = PoolingList<ScoreItem>;

/// One pair's score.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ScoreItem {
    /// Of the pair.
    pub index: usize,
    /// "score".
    pub object: &'static str,
    /// Higher: more to do with each other.
    pub score: f32,
}

/// The answer of `/rerank`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RerankAnswer {
    /// Of the answer, such as `rerank-…`.
    pub id: String,
    /// As the client named it.
    pub model: String,
    /// Tokens of all pairs.
    pub usage: PoolingUsage,
    /// The best first.
    pub results: Vec<RerankResult>,
}

/// One document's place.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RerankResult {
    /// Of the document in the request.
    pub index: usize,
    /// The document, unless the request does not want it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document: Option<RerankDocument>,
    /// Higher: more to do with the query.
    pub relevance_score: f32,
}

/// A document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RerankDocument {
    /// Its text.
    pub text: String,
}
