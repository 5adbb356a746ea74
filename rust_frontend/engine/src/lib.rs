//! Engine client: request registry, credits, replay.
//!
//! [`Generate`] is the seam: routes submit a request and read a [`StepStream`]. [`EngineClient`], scripted engines and
//! routers implement it. The client keeps what each open request has emitted; when an engine core dies, or messages
//! are lost, it sends every open request again with that, and the streams go on where they stopped.

mod affinity;
mod broadcast;
mod client;
mod config;
mod controls;
mod driver;
mod fleet;
mod generate;
mod link;
mod load;
mod registry;
mod sessions;
mod status;
mod stream;
mod suspects;

pub use affinity::BASE_VERSION;
pub use client::EngineClient;
pub use config::EngineConfig;
pub use fleet::Fleet;
pub use generate::{ControlFuture, Generate, GenerateError, RankView, Step, Submission};
pub use octavo_transport::TransportError;
pub use stream::{News, StepSender, StepStream, channel};
