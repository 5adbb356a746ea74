//! Tokenizer files, encoding, and decoding token by token.
//!
//! [`Tokenizer`] is loaded once and shared. Encoding is that of the `tokenizers` crate. Decoding is octavo's own: a table
//! of the bytes that each id stands for, so that a stream costs the same per token however long it gets.
//! [`Tokenizer::encode`] is the one door to encoding: a cache of encoded prefixes goes behind it.

mod batch;
mod bound;
mod config;
mod decoder;
mod encoding;
mod error;
mod pieces;
mod plan;
mod tokenizer;

pub use config::SpecialTokens;
pub use decoder::IncrementalDecoder;
pub use encoding::Encoding;
pub use error::TokenizerError;
pub use tokenizer::{Tokenizer, Word};
