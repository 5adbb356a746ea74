//! Metrics and logging: what the frontend tells the people who run it.

mod engine;
mod latest;
mod log;
mod metrics;
mod request;
mod trace;

pub use engine::{EngineView, RankFigures};
pub use log::{LEVELS, LogError, setup};
pub use metrics::{CONTENT_TYPE, Metrics};
pub use request::{Caller, Outcome, RequestMetrics, Timing};
pub use trace::{Asked, TraceParent, TraceSink, Traced};
