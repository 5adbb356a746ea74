//! HTTP: the routes that need an engine, and the SSE writer.
//!
//! Charter: turn bytes from strangers into submissions, and steps into bytes. Rendering, tokenizing and detokenizing
//! belong to `octavo-render`, scheduling and replay to whatever implements `octavo_engine::Generate`, connections, bodies and limits to `octavo-edge`.
//!
//! A request is one future, owned by its connection: when the client leaves, it is dropped, with it the `StepStream`,
//! and so the request is aborted.

mod app;
mod beam_search;
mod beams;
mod blocks;
mod body_limits;
mod chunks;
mod control;
mod door;
mod envelope;
mod generate;
mod inference;
mod interrupt;
mod live;
mod logprobs;
mod messages;
mod openapi;
mod output;
mod outputs;
mod partial;
mod pinned;
mod pooling;
mod project;
mod refusal;
mod responses;
mod route;
mod showing;
mod silence;
mod sse;
mod start;
mod status;
#[cfg(test)]
mod stream_costs;
mod whole;

pub use app::{ACCESS, App, AppState, LIGHT};
pub use door::{Asked, Gained, Kind, Running};
pub use openapi::document as openapi_document;
pub use output::End;
pub use pooling::PoolingModel;
pub use responses::{ResponseStore, StoreLimits};

#[cfg(test)]
#[path = "../tests/support/model.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]
mod model;
