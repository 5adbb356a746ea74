//! Why the program ends, and the exit code that says whether starting it again may help.

use std::process::ExitCode;

/// An error that ends the program.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// What the program was given cannot work; it would fail again.
    #[error("{0}")]
    Config(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// What the program was given cannot work.
    pub fn config(message: impl Into<String>) -> Self {
        Self::Config(message.into())
    }

    /// Anything else.
    pub fn other(message: impl Into<String>) -> Self {
        Self::Other(message.into())
    }

    /// 2 where starting again does not help, else 1.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Config(_) => ExitCode::from(2),
            Self::Other(_) => ExitCode::FAILURE,
        }
    }
}
