//! What each token id stands for, as bytes.

use std::collections::HashMap;

use crate::alphabet;
use crate::plan::{Chain, Plan};

/// A token that clients do not see.
const HIDDEN: u8 = 1;
/// A byte token (`<0xE5>`), whose bytes need not be text.
const BYTE: u8 = 2;

/// The bytes of all ids, and the plan that joins them. Ids that nothing stands for decode to nothing.
#[derive(Debug)]
pub(crate) struct Pieces {
    plan: Plan,
    /// Where the bytes of id i end; they begin where those of the id before end.
    ends: Vec<u32>,
    bytes: Vec<u8>,
    flags: Vec<u8>,
    /// Present where the first token of a text reads differently: its bytes then.
    first: HashMap<u32, Vec<u8>>,
}

/// One token of a vocabulary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    content: Content,
    /// Whether clients do not see it.
    hidden: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    /// As it stands in tokenizer.json; the plan says what it means.
    Text(String),
    /// What it means.
    Bytes(Vec<u8>),
}

impl Token {
    /// A token of tokenizer.json.
    pub(crate) fn text(text: String, hidden: bool) -> Self {
        Self {
            content: Content::Text(text),
            hidden,
        }
    }

    /// A token that clients do not see.
    pub(crate) fn special(text: String) -> Self {
        Self::text(text, true)
    }

    /// A token that stands for these bytes.
    pub(crate) fn bytes(bytes: Vec<u8>) -> Self {
        Self {
            content: Content::Bytes(bytes),
            hidden: false,
        }
    }
}

/// One token as the decoder sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'a> {
    pub(crate) bytes: &'a [u8],
    /// Whether it is part of a run of byte tokens.
    pub(crate) byte: bool,
}

impl Pieces {
    /// Builds the table from all tokens by id.
    pub(crate) fn build(plan: Plan, tokens: &[Option<Token>]) -> Self {
        let mut pieces = Self {
            plan,
            ends: Vec::with_capacity(tokens.len()),
            bytes: Vec::new(),
            flags: Vec::new(),
            first: HashMap::new(),
        };
        for (id, token) in tokens.iter().enumerate() {
            let mut flags = HIDDEN;
            if let Some(token) = token {
                flags = if token.hidden { HIDDEN } else { 0 };
                match &token.content {
                    Content::Bytes(bytes) => pieces.bytes.extend_from_slice(bytes),
                    Content::Text(text) => {
                        flags |= pieces.append(u32::try_from(id).unwrap_or(u32::MAX), text);
                    }
                }
            }
            pieces.flags.push(flags);
            pieces
                .ends
                .push(u32::try_from(pieces.bytes.len()).unwrap_or(u32::MAX));
        }
        pieces
    }

    /// Number of ids in the table.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The piece of an id; `None` for ids that show nothing.
    pub(crate) fn visible(&self, id: u32) -> Option<Piece<'_>> {
        let index = usize::try_from(id).ok()?;
        self.any(id).filter(|_| self.flags[index] & HIDDEN == 0)
    }

    /// The piece of an id, special tokens included; `None` for ids that nothing stands for.
    pub(crate) fn any(&self, id: u32) -> Option<Piece<'_>> {
        let index = usize::try_from(id).ok()?;
        let flags = *self.flags.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]) as usize;
        Some(Piece {
            bytes: &self.bytes[start..self.ends[index] as usize],
            byte: flags & BYTE != 0,
        })
    }

    /// The bytes of an id where it is the first that shows.
    pub(crate) fn first<'a>(&'a self, id: u32, piece: Piece<'a>) -> &'a [u8] {
        self.first.get(&id).map_or(piece.bytes, Vec::as_slice)
    }

    /// The bytes of an id, whether clients see it or not; `None` where there is no such id.
    pub(crate) fn whole(&self, id: u32) -> Option<&[u8]> {
        let index = usize::try_from(id).ok()?;
        let end = *self.ends.get(index)? as usize;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]) as usize;
        Some(&self.bytes[start..end])
    }

    fn append(&mut self, id: u32, token: &str) -> u8 {
        match self.plan.clone() {
            Plan::ByteLevel => {
                // A token with a character outside the alphabet (an added one) is its own text.
                if !alphabet::append(token, &mut self.bytes) {
                    self.bytes.extend_from_slice(token.as_bytes());
                }
            }
            Plan::Words => self.bytes.extend_from_slice(token.as_bytes()),
            Plan::Chain(chain) => return self.append_chain(&chain, token),
            Plan::Metaspace { space, drop_first } => {
                self.bytes
                    .extend_from_slice(token.replace(space, " ").as_bytes());
                if drop_first && token.contains(space) {
                    self.first.insert(id, token.replace(space, "").into_bytes());
                }
            }
            Plan::WordPiece { prefix, clean } => {
                let cleaned = |text: String| if clean { clean_up(&text) } else { text };
                let joined = token.strip_prefix(&prefix).filter(|_| !prefix.is_empty());
                let joined = joined.map_or_else(|| format!(" {token}"), str::to_owned);
                self.bytes.extend_from_slice(cleaned(joined).as_bytes());
                self.first
                    .insert(id, cleaned(token.to_owned()).into_bytes());
            }
        }
        0
    }

    fn append_chain(&mut self, chain: &Chain, token: &str) -> u8 {
        let text = chain
            .replace
            .iter()
            .fold(token.to_owned(), |text, (from, to)| text.replace(from, to));
        match byte_token(&text).filter(|_| chain.byte_fallback) {
            Some(byte) => {
                self.bytes.push(byte);
                BYTE
            }
            None => {
                self.bytes.extend_from_slice(text.as_bytes());
                0
            }
        }
    }
}

/// Takes out the spaces that a word-piece tokenizer put before punctuation, within one token and its space.
fn clean_up(text: &str) -> String {
    const CLEAN: [(&str, &str); 11] = [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" do not", " don't"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ];
    CLEAN
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Reads a token of the form `<0xE5>`.
fn byte_token(token: &str) -> Option<u8> {
    let hex = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if hex.len() == 2 {
        u8::from_str_radix(hex, 16).ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_tokens_keep_their_text() {
        let tokens = ["<|im end|>", "Ġcaf\u{c3}\u{a9}"]
            .map(|text| Some(Token::text(text.to_owned(), false)));
        let pieces = Pieces::build(Plan::ByteLevel, &tokens);
        assert_eq!(pieces.whole(0), Some(b"<|im end|>".as_slice()));
        assert_eq!(pieces.whole(1), Some(" café".as_bytes()));
    }

    #[test]
    fn byte_tokens_have_two_digits() {
        assert_eq!(byte_token("<0xE5>"), Some(0xE5));
        for other in ["<0xE>", "<0xE55>", "0xE5", "<0xZZ>"] {
            assert_eq!(byte_token(other), None);
        }
    }
}
