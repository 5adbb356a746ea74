//! The two ways to ask for tokens.

use octavo_api::{ChatChunk, Completion};

/// Which API a request came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completion,
}

impl Route {
    pub(crate) fn id_prefix(self) -> &'static str {
        match self {
            Self::Chat => "chatcmpl",
            Self::Completion => "cmpl",
        }
    }

    /// The `object` of a streamed event.
    pub(crate) fn chunk_object(self) -> &'static str {
        match self {
            Self::Chat => ChatChunk::OBJECT,
            Self::Completion => Completion::OBJECT,
        }
    }

    /// What stands around new text in a choice.
    pub(crate) fn text_frame(self) -> (&'static [u8], &'static [u8]) {
        match self {
            Self::Chat => (br#""delta":{"content":"#, b"},"),
            Self::Completion => (br#""text":"#, b","),
        }
    }

    /// What stands for no text in a choice.
    pub(crate) fn empty_frame(self) -> &'static [u8] {
        match self {
            Self::Chat => br#""delta":{},"#,
            Self::Completion => br#""text":"","#,
        }
    }
}
