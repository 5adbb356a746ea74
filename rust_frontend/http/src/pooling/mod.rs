//! The routes of models that give vectors: embeddings, labels, scores; and scores by models that make tokens.

mod answer;
mod cohere;
mod generative;
mod labels;
mod model;
mod pairs;
mod vectors;
mod work;

use std::sync::Arc;

use axum::Router;
use axum::routing::post;

use crate::app::AppState;

pub use model::PoolingModel;

/// The table of these routes.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/embeddings", post(vectors::embeddings))
        .route("/v2/embed", post(cohere::embed))
        .route("/classify", post(labels::classify))
        .route("/pooling", post(vectors::pooling))
        .route("/generative_scoring", post(generative::score))
        .route("/score", post(pairs::score))
        .route("/v1/score", post(pairs::score))
        .route("/rerank", post(pairs::rerank))
        .route("/v1/rerank", post(pairs::rerank))
        .route("/v2/rerank", post(pairs::rerank))
}
