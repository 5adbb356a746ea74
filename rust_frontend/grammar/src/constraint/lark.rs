//! Pieces of Lark grammars.

use serde_json::Value;

/// White space between JSON tokens, at most so much of it at one place.
pub(crate) const MAX_SPACE: usize = 64;

/// Any text, as a terminal.
pub(crate) const ANY_TEXT: &str = "/(?s:.*)/";

/// A literal. Strings of Lark are read as JSON.
pub(crate) fn literal(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

/// Texts that are tokens of their own, with their ids: where a grammar writes one, the token is meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Specials {
    tokens: Vec<(String, u32)>,
    ends: Vec<u32>,
}

/// A part of a text.
enum Piece<'a> {
    Text(&'a str),
    Token(u32),
}

impl Specials {
    /// Take tokens and their ids.
    pub fn new(mut tokens: Vec<(String, u32)>) -> Self {
        tokens.retain(|(text, _)| !text.is_empty());
        // At one place the longest is meant.
        tokens.sort_by(|left, right| {
            right
                .0
                .len()
                .cmp(&left.0.len())
                .then_with(|| left.cmp(right))
        });
        Self {
            tokens,
            ends: Vec::new(),
        }
    }

    /// Say which of the tokens end an output: a grammar may end there and does not name them.
    #[must_use]
    pub fn ending(mut self, ends: &[u32]) -> Self {
        self.ends = ends.to_vec();
        self
    }

    /// A text without the end tokens at its end.
    pub(crate) fn without_end<'t>(&self, text: &'t str) -> &'t str {
        let mut text = text;
        while let Some((token, _)) = self
            .tokens
            .iter()
            .find(|(token, id)| self.ends.contains(id) && text.ends_with(token.as_str()))
        {
            text = &text[..text.len() - token.len()];
        }
        text
    }

    /// A text as a sequence of literals and tokens.
    pub(crate) fn expression(&self, text: &str) -> String {
        let pieces: Vec<String> = self
            .pieces(text)
            .into_iter()
            .map(|piece| match piece {
                Piece::Text(text) => literal(text),
                Piece::Token(id) => format!("<[{id}]>"),
            })
            .collect();
        if pieces.is_empty() {
            return literal("");
        }
        pieces.join(" ")
    }

    /// The token that a text begins with, and the text behind it.
    fn leading<'a>(&self, text: &'a str) -> Option<(u32, &'a str)> {
        self.tokens
            .iter()
            .find_map(|(token, id)| text.strip_prefix(token.as_str()).map(|rest| (*id, rest)))
    }

    fn pieces<'a>(&self, text: &'a str) -> Vec<Piece<'a>> {
        let mut pieces = Vec::new();
        let mut begin = 0;
        let mut at = 0;
        while at < text.len() {
            if let Some((id, rest)) = self.leading(&text[at..]) {
                if begin < at {
                    pieces.push(Piece::Text(&text[begin..at]));
                }
                pieces.push(Piece::Token(id));
                at = text.len() - rest.len();
                begin = at;
            } else {
                at += text[at..].chars().next().map_or(1, char::len_utf8);
            }
        }
        if begin < text.len() {
            pieces.push(Piece::Text(&text[begin..]));
        }
        pieces
    }
}

/// A rule `name` for any text up to and with `end`.
pub(crate) fn until(end: &str, specials: &Specials, name: &str) -> String {
    match specials.leading(end) {
        Some(_) => format!("{name}: {ANY_TEXT} {}", specials.expression(end)),
        None => {
            // A token inside of the end is written out behind the text before it.
            let (text, rest) = specials.split(end);
            let rest = if rest.is_empty() {
                String::new()
            } else {
                format!(" {}", specials.expression(rest))
            };
            format!(
                "{name}: {name}_text{rest}\n{name}_text[lazy]: {ANY_TEXT} {}",
                literal(text)
            )
        }
    }
}

impl Specials {
    /// A text up to its first token, and the rest.
    pub(crate) fn split<'a>(&self, text: &'a str) -> (&'a str, &'a str) {
        match self.pieces(text).first() {
            Some(Piece::Text(first)) => text.split_at(first.len()),
            _ => ("", text),
        }
    }
}
