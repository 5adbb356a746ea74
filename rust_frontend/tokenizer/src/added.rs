//! Added tokens of a tokenizer.json: they are cut out of a text before anything else looks at it, as the `tokenizers` crate
//! does it.

use std::borrow::Cow;

use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::AddedToken;

use crate::composed::composed;

/// A part of a text.
pub(crate) enum Part<'a> {
    /// An added token, by its id.
    Token(u32),
    /// Text to split and encode, normalized.
    Text(&'a str),
}

/// The added tokens of a vocabulary, and the normalizer: some tokens are looked for before it, some behind it.
#[derive(Debug)]
pub(crate) struct AddedTokens {
    raw: Option<Matcher>,
    normalized: Option<Matcher>,
    /// Whether texts are brought into composed form (NFC).
    composes: bool,
}

/// Tokens that are looked for at once; the longest holds where several begin at one place.
#[derive(Debug)]
struct Matcher {
    automaton: AhoCorasick,
    tokens: Vec<Added>,
}

#[derive(Debug, Clone, Copy)]
struct Added {
    id: u32,
    special: bool,
    /// Whether the token takes the white space in front of it.
    left: bool,
    /// Whether it takes the white space behind it.
    right: bool,
}

impl AddedTokens {
    /// Prepares tokens with their ids. `None` where one is of a kind that is not known here.
    pub(crate) fn new<'a>(
        tokens: impl Iterator<Item = (u32, &'a AddedToken)>,
        composes: bool,
    ) -> Option<Self> {
        let (mut raw, mut normalized) = (Vec::new(), Vec::new());
        for (id, token) in tokens.filter(|(_, token)| !token.content.is_empty()) {
            if token.single_word {
                return None;
            }
            let added = Added {
                id,
                special: token.special,
                left: token.lstrip,
                right: token.rstrip,
            };
            match token.normalized {
                true => normalized.push((self::form(&token.content, composes), added)),
                false => raw.push((Cow::Borrowed(token.content.as_str()), added)),
            }
        }
        Some(Self {
            raw: Matcher::new(&raw)?,
            normalized: Matcher::new(&normalized)?,
            composes,
        })
    }

    /// Calls `give` for each part of a text, in order. Without `specials`, special tokens are text like any other.
    ///
    /// # Errors
    /// Those of `give`.
    pub(crate) fn cut<E>(
        &self,
        text: &str,
        specials: bool,
        give: &mut impl FnMut(Part<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        cut(self.raw.as_ref(), text, specials, &mut |part| match part {
            Part::Token(id) => give(Part::Token(id)),
            Part::Text(text) => {
                let text = form(text, self.composes);
                cut(self.normalized.as_ref(), &text, specials, give)
            }
        })
    }
}

impl Matcher {
    /// `None` within where there are no tokens; `None` where the tokens are too many.
    fn new(tokens: &[(Cow<'_, str>, Added)]) -> Option<Option<Self>> {
        if tokens.is_empty() {
            return Some(None);
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|(text, _)| text.as_bytes()))
            .ok()?;
        let tokens = tokens.iter().map(|(_, added)| *added).collect();
        Some(Some(Self { automaton, tokens }))
    }
}

/// The form in which a text is encoded.
fn form(text: &str, composes: bool) -> Cow<'_, str> {
    match composes {
        true => composed(text),
        false => Cow::Borrowed(text),
    }
}

fn cut<E>(
    matcher: Option<&Matcher>,
    text: &str,
    specials: bool,
    give: &mut impl FnMut(Part<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut done = 0;
    for found in matcher
        .iter()
        .flat_map(|matcher| matcher.automaton.find_iter(text))
    {
        let Some(token) = matcher.map(|matcher| matcher.tokens[found.pattern().as_usize()]) else {
            continue;
        };
        if token.special && !specials {
            continue;
        }
        let (mut start, mut end) = (found.start(), found.end());
        if token.left {
            // White space that the token before took is gone.
            start = text[..start].trim_end().len().max(done);
        }
        if token.right {
            end = text.len() - text[end..].trim_start().len();
        }
        if done < start {
            give(Part::Text(&text[done..start]))?;
        }
        give(Part::Token(token.id))?;
        done = end;
    }
    if done < text.len() {
        give(Part::Text(&text[done..]))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(content: &str) -> AddedToken {
        AddedToken::from(content, true)
    }

    fn parts(tokens: &[AddedToken], text: &str, specials: bool) -> Vec<String> {
        let numbered = (0..).zip(tokens);
        let added = AddedTokens::new(numbered, true).unwrap();
        let mut parts = Vec::new();
        let mut give = |part: Part<'_>| {
            parts.push(match part {
                Part::Token(id) => id.to_string(),
                Part::Text(text) => format!("[{text}]"),
            });
            Ok::<_, ()>(())
        };
        added.cut(text, specials, &mut give).unwrap();
        parts
    }

    #[test]
    fn the_longest_token_holds_and_text_is_composed() {
        let tokens = [
            token("<a>"),
            token("<a>b"),
            AddedToken::from("e\u{301}x", false),
        ];
        assert_eq!(
            parts(&tokens, "o\u{308}<a>b<a> <a", true),
            ["[ö]", "1", "0", "[ <a]"]
        );
        assert_eq!(parts(&tokens, "<a>é", false), ["[<a>é]"]);
        assert_eq!(parts(&tokens, "<a>e\u{301}x", false), ["[<a>]", "2"]);
        assert!(parts(&tokens, "", true).is_empty());
    }

    #[test]
    fn tokens_take_the_white_space_beside_them() {
        let tokens = [
            token("<l>").lstrip(true),
            token("<r>").rstrip(true),
            token(" <x>"),
        ];
        assert_eq!(
            parts(&tokens, "a \n<l> b <r>\t \u{3000}c", true),
            ["[a]", "0", "[ b ]", "1", "[c]"]
        );
        assert_eq!(parts(&tokens, "<r>  <l>d", true), ["1", "0", "[d]"]);
        assert_eq!(parts(&tokens, "<r> <x>", true), ["1", "2"]);
    }
}
