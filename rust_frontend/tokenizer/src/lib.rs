//! Tokenizer files, encoding, and decoding token by token.
//!
//! [`Tokenizer`] is loaded once and shared. Encoding is that of the `tokenizers` crate, or of byte pairs by ranks for
//! tiktoken and tekken files. Decoding is octavo's own: a table of the bytes that each id stands for, so that a stream costs
//! the same per token however long it gets. [`Tokenizer::encode`] is the one door to encoding; behind it stands a cache of
//! encodings, cut at special tokens, so that a conversation that grows costs what is new in it.

mod batch;
mod bound;
mod cache;
mod config;
mod decoder;
mod encoding;
mod engine;
mod error;
mod load;
mod pieces;
mod plan;
mod ranked;
mod tekken;
mod tiktoken;
mod tokenizer;

pub use config::SpecialTokens;
pub use decoder::IncrementalDecoder;
pub use encoding::Encoding;
pub use error::TokenizerError;
pub use tokenizer::{Tokenizer, Word};
