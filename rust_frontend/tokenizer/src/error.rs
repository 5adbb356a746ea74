//! Why a tokenizer cannot be loaded or used.

use std::path::PathBuf;

/// Errors of this crate. Messages name the file and what to do.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// No file of a tokenizer is there.
    #[error(
        "{0} has no tokenizer: octavo reads tokenizer.json, tekken.json and tiktoken files. Point at a folder that has one, or \
         write tokenizer.json with AutoTokenizer.from_pretrained(...).save_pretrained(...)"
    )]
    Missing(PathBuf),
    /// A file is there and cannot be read.
    #[error("{0} cannot be read: {1}")]
    Unreadable(PathBuf, std::io::Error),
    /// A file is not what its name says.
    #[error("{0} is damaged or of an unknown kind: {1}. Fetch it again")]
    Damaged(PathBuf, String),
    /// The decoder in tokenizer.json is one that octavo does not know.
    #[error(
        "tokenizer.json has a decoder that is not supported: {0}. Supported: ByteLevel, Metaspace, WordPiece, none, and the sequence Replace, ByteFallback, Fuse, Strip"
    )]
    Decoder(String),
    /// The text could not be encoded.
    #[error("the text cannot be tokenized: {0}")]
    Encode(String),
}
