//! Engine client: request registry, credits, replay.
//!
//! [`Generate`] is the seam: routes submit a request and read a [`StepStream`]. The engine client, scripted engines and
//! routers implement it.

mod generate;
mod stream;

pub use generate::{Generate, GenerateError, Step, Submission};
pub use stream::{StepSender, StepStream, channel};
