//! Why a template cannot be loaded, or a conversation not rendered.

use std::path::PathBuf;

/// A template that cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file is there and cannot be read.
    #[error("{0} cannot be read: {1}")]
    Unreadable(PathBuf, std::io::Error),
    /// `chat_template` in `tokenizer_config.json` is neither a string nor a list of named ones.
    #[error(
        "chat_template in tokenizer_config.json must be a string or a list of {{name, template}}: {0}"
    )]
    Shape(String),
    /// The template is no valid Jinja, or uses what octavo does not support.
    #[error("the chat template \"{name}\" cannot be compiled: {reason}")]
    Syntax {
        /// "default", "`tool_use`", ...
        name: String,
        /// With the line.
        reason: String,
    },
}

/// A conversation that a template does not render. The request is at fault, or the template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The template refused by calling `raise_exception`; the message is the template's own.
    #[error("{0}")]
    Refused(String),
    /// The template failed on this conversation.
    #[error("The chat template cannot render this conversation: {0}")]
    Failed(String),
    /// The template did more work than any template should.
    #[error("The chat template took too long or wrote too much on this conversation: {0}")]
    Unbounded(String),
    /// The last message cannot be continued.
    #[error("The last message cannot be continued: {0}")]
    Continuation(String),
}

/// Marks an error that `raise_exception` made; carried as the source of minijinja's.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Raised(pub(crate) String);

impl RenderError {
    /// Sorts an error of minijinja's.
    pub(crate) fn from_jinja(error: &minijinja::Error) -> Self {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(current) = cause {
            if let Some(Raised(message)) = current.downcast_ref() {
                return Self::Refused(message.clone());
            }
            if let Some(inner) = current.downcast_ref::<minijinja::Error>()
                && inner.kind() == minijinja::ErrorKind::OutOfFuel
            {
                return Self::Unbounded(describe(error));
            }
            cause = current.source();
        }
        if error.kind() == minijinja::ErrorKind::WriteFailure {
            return Self::Unbounded(describe(error));
        }
        Self::Failed(describe(error))
    }
}

/// An error of minijinja's in one line.
pub(crate) fn describe(error: &minijinja::Error) -> String {
    let what = error.detail().map_or_else(
        || error.kind().to_string(),
        |detail| format!("{}: {detail}", error.kind()),
    );
    match error.line() {
        Some(line) => format!("{what} (line {line})"),
        None => what,
    }
}
