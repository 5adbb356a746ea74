//! Tokenizer files, encoding, and decoding token by token.
//!
//! [`Tokenizer`] is loaded once and shared. Encoding is octavo's own for the common kind of tokenizer.json, byte-level
//! pairs, and for tiktoken and tekken files, and that of the `tokenizers` crate for all others. Decoding is octavo's own: a table of the bytes that each id stands for, so that a stream costs
//! the same per token however long it gets. [`Tokenizer::encode`] is the one door to encoding; behind it stands a cache of
//! encodings, cut at special tokens, so that a conversation that grows costs what is new in it.

mod added;
mod alphabet;
mod batch;
mod bound;
mod byte_level;
mod cache;
mod composed;
mod config;
mod crate_file;
mod decoder;
mod encoding;
mod engine;
mod error;
mod joined;
mod kept;
mod load;
mod merges;
mod model_file;
mod pieces;
mod plan;
mod ranked;
mod recent;
mod splitter;
mod steps;
mod tekken;
mod tiktoken;
mod tokenizer;
mod vocabulary;

pub use config::SpecialTokens;
pub use decoder::IncrementalDecoder;
pub use encoding::Encoding;
pub use error::TokenizerError;
pub use joined::Joined;
pub use tokenizer::{Tokenizer, Word};
