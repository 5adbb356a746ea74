//! Collects the pieces of a prompt.

use super::Piece;
use crate::error::RenderError;

/// Pieces in order. Text that is written in one go is tokenized in one go.
#[derive(Debug, Default)]
pub(super) struct Pieces(Vec<Piece>);

impl Pieces {
    /// A special token.
    pub(super) fn special(&mut self, token: &str) {
        self.0.push(Piece::Special(token.to_owned()));
    }

    /// Text in which nothing is special; no piece if it is empty.
    pub(super) fn text(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !text.is_empty() {
            self.0.push(Piece::Ordinary(text));
        }
    }

    /// Everything.
    pub(super) fn done(self) -> Vec<Piece> {
        self.0
    }

    /// Takes the end of the assistant's turn away, given as the texts of its pieces.
    ///
    /// # Errors
    /// The prompt ends otherwise: its last message is not the assistant's.
    pub(super) fn reopen(mut self, end: &[&str]) -> Result<Vec<Piece>, RenderError> {
        let keep = self.0.len().checked_sub(end.len());
        let same = |keep: &usize| {
            self.0[*keep..]
                .iter()
                .map(Piece::text)
                .eq(end.iter().copied())
        };
        let keep = keep.filter(same);
        let keep =
            keep.ok_or_else(|| RenderError::Continuation("it is not the assistant's".to_owned()))?;
        self.0.truncate(keep);
        Ok(self.0)
    }
}
