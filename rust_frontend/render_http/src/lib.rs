//! Routes between text and token ids: render, derender, tokenize, detokenize. They need no engine.
//!
//! [`TextService`] answers a body with a body, without I/O: HTTP handlers ([`text_routes`]) and the filter of
//! `octavo-renderer` are two ways to it.

mod derender;
pub mod events;
mod render;
mod routes;
mod service;
mod tokenize;

pub use routes::{TextState, text_routes};
pub use service::{Answer, Asked, TextRoute, TextService};
