//! Routes of models that give vectors: embeddings, labels, scores, and what all of them take.

mod answers;
mod cohere;
mod generative;
mod input;
mod labels;
mod pairs;
mod vectors;
mod wire_format;

pub use answers::{
    Classification, ClassifyAnswer, EmbeddingAnswer, EmbeddingItem, PooledAnswer, PooledData,
    PooledItem, PoolingList, PoolingUsage, RerankAnswer, RerankDocument, RerankResult, ScoreAnswer,
    ScoreItem,
};
pub use cohere::{
    CohereEmbedAnswer, CohereEmbedRequest, CohereEmbeddings, CohereMeta, CohereType, CohereUnits,
    CohereVersion,
};
pub use generative::GenerativeScoringRequest;
pub use input::{MAX_TEXTS, PooledInput, PoolingOptions};
pub use labels::ClassifyRequest;
pub use pairs::{Pair, RerankRequest, ScoreRequest};
pub use vectors::VectorsRequest;
pub use wire_format::{EmbedDtype, Encoding, Endianness, VectorFormat};

use serde_json::{Map, Value};

/// Names of the fields that are left when all that are known were taken.
pub(crate) fn unknown(fields: Map<String, Value>) -> Vec<String> {
    let left = fields.into_iter().filter(|(_, value)| !value.is_null());
    left.map(|(name, _)| name).collect()
}
