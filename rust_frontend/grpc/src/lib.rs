//! gRPC: inference, control, health and reflection, on what HTTP stands on.
//!
//! Charter: turn messages into the fields that the HTTP routes read, and pieces of answers into messages. A field means
//! here what it means there, because the same code reads it; so do errors. Connections, keys and limits belong to
//! `octavo-edge`.

mod answer;
mod control;
mod conversation;
mod deadline;
mod fields;
mod health;
mod inference;
pub mod proto;
mod router;
mod sampling;
mod status;

pub use router::{ReflectionError, router};
