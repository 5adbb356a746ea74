//! Metrics and logging: what the frontend tells the people who run it.

mod log;
mod metrics;
mod request;

pub use log::{LEVELS, LogError, setup};
pub use metrics::{CONTENT_TYPE, Metrics};
pub use request::{Outcome, RequestMetrics};
