//! Why a constraint is refused.

use std::borrow::Cow;

/// Longest message, in characters: those of parsers show what they read, which may be all that the client sent.
const MAX_SHOWN: usize = 600;

/// A constraint that cannot be enforced as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConstraintError {
    /// Which part of what the client sent: keywords and names with dots between them; empty where it is the whole.
    pub part: String,
    /// What is wrong with it and, where there is something to do, what.
    pub message: String,
}

impl ConstraintError {
    /// An error of one part.
    pub fn new(part: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            part: part.into(),
            message: message.into(),
        }
    }

    /// An error of the whole.
    pub fn whole(message: impl Into<String>) -> Self {
        Self::new("", message)
    }

    /// The same error of a part of `outer`.
    #[must_use]
    pub fn within(mut self, outer: &str) -> Self {
        self.part = match (outer.is_empty(), self.part.is_empty()) {
            (true, _) => self.part,
            (_, true) => outer.to_owned(),
            _ => format!("{outer}.{}", self.part),
        };
        self
    }
}

impl std::fmt::Display for ConstraintError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.part.is_empty() {
            write!(out, "{}", clipped(&self.message))
        } else {
            write!(out, "{}: {}", clipped(&self.part), clipped(&self.message))
        }
    }
}

fn clipped(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_SHOWN) {
        Some((at, _)) => Cow::Owned(format!("{}…", &text[..at])),
        None => Cow::Borrowed(text),
    }
}

impl std::error::Error for ConstraintError {}
