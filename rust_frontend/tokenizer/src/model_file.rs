//! What of a tokenizer.json a byte-level encoder needs, read without copies of its hundred thousands of texts.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// The file, but for its added tokens.
#[derive(serde::Deserialize)]
pub(crate) struct ModelFile<'a> {
    #[serde(default)]
    pub(crate) normalizer: Value,
    #[serde(default)]
    pub(crate) pre_tokenizer: Value,
    #[serde(borrow)]
    pub(crate) model: Model<'a>,
}

/// A model of byte pairs.
#[derive(serde::Deserialize)]
pub(crate) struct Model<'a> {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) dropout: Option<f64>,
    #[serde(default)]
    pub(crate) continuing_subword_prefix: Option<String>,
    #[serde(default)]
    pub(crate) end_of_word_suffix: Option<String>,
    #[serde(default)]
    pub(crate) ignore_merges: bool,
    /// What stands for bytes that have no token.
    #[serde(default)]
    pub(crate) unk_token: Option<String>,
    /// Whether tokens such as `<0xE5>` stand for them.
    #[serde(default)]
    pub(crate) byte_fallback: bool,
    #[serde(borrow)]
    pub(crate) vocab: Vocab<'a>,
    #[serde(borrow)]
    pub(crate) merges: Vec<Merge<'a>>,
}

/// Tokens with their ids, in the order of the file.
pub(crate) struct Vocab<'a>(pub(crate) Vec<(Text<'a>, u32)>);

/// A text of the file.
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

/// The two tokens of a rule: `["a", "b"]`, or `"a b"` in older files; `None` for the line that names a version.
pub(crate) struct Merge<'a>(pub(crate) Option<(Text<'a>, Text<'a>)>);

impl<'de: 'a, 'a> Deserialize<'de> for Vocab<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Vocab<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object of tokens and ids")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Vocab(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Text<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a text")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Either)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Merge<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Rule;
        impl<'de> Visitor<'de> for Rule {
            type Value = Merge<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("two tokens")
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Self::Value, S::Error> {
                match (list.next_element()?, list.next_element()?) {
                    (Some(left), Some(right)) => Ok(Merge(Some((left, right)))),
                    _ => Err(S::Error::custom("a rule needs two tokens")),
                }
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                halves(text, |text| Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                halves(text, |text| Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_any(Rule)
    }
}

fn halves<'a, 'b, E: Error>(
    text: &'b str,
    keep: impl Fn(&'b str) -> Text<'a>,
) -> Result<Merge<'a>, E> {
    if text.starts_with("#version") {
        return Ok(Merge(None));
    }
    match text.split_once(' ') {
        Some((left, right)) if !right.contains(' ') => Ok(Merge(Some((keep(left), keep(right))))),
        _ => Err(E::custom("a rule needs two tokens")),
    }
}
