//! Why bytes are not a message.

/// Why bytes could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end inside a value.
    #[error("the message ends inside a value")]
    Truncated,
    /// Another kind of value was due.
    #[error("expected {expected}, found the MessagePack marker 0x{found:02x}")]
    Unexpected {
        /// What was due.
        expected: &'static str,
        /// The first byte of what came.
        found: u8,
    },
    /// An integer does not fit its field.
    #[error("an integer is out of the range of its field")]
    OutOfRange,
    /// A string is not UTF-8.
    #[error("a string is not UTF-8")]
    Utf8,
    /// The length of packed token ids is not a multiple of four.
    #[error("{0} bytes cannot be packed int32 token ids")]
    Tokens(usize),
    /// The length of packed numbers is not a multiple of four.
    #[error("{0} bytes cannot be packed float32 numbers")]
    Floats(usize),
    /// A field without a default is absent.
    #[error("{record} has no field `{field}`")]
    Missing {
        /// The record's name.
        record: &'static str,
        /// The field's name.
        field: &'static str,
    },
    /// The message is of a kind that this version does not know.
    #[error("unknown message `{0}`")]
    UnknownTag(String),
    /// Bytes follow the message.
    #[error("{0} bytes follow the message")]
    Trailing(usize),
}
