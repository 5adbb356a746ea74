//! Texts within a number of tokens, alone or two of them joined as the model was trained to read them.

use std::ops::Range;

use tokenizers::tokenizer::PostProcessor as _;
use tokenizers::{TruncationDirection, TruncationParams, TruncationStrategy};

use crate::encoding::Encoding;
use crate::engine::{Engine, Fast};
use crate::error::TokenizerError;
use crate::tokenizer::Tokenizer;

/// Token ids of one text or two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// With the model's own special tokens.
    pub ids: Vec<u32>,
    /// Where the second text begins in the model's eyes; 0 where it makes no difference.
    pub second: usize,
}

impl Tokenizer {
    /// Encodes a text and cuts it to `most` tokens, those among them that the model adds, which stay. `left` cuts off its
    /// beginning.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_within(
        &self,
        text: &str,
        add_special_tokens: bool,
        most: usize,
        left: bool,
    ) -> Result<Vec<u32>, TokenizerError> {
        let ids = self.encode(text, add_special_tokens)?;
        if ids.len() <= most {
            return Ok(ids);
        }
        let offsets = Vec::new();
        let whole = Encoding { ids, offsets };
        Ok(self.cut(text, whole, most, left)?.0.ids)
    }

    /// Cuts what a text was encoded to, with offsets or without, as [`Self::encode_within`] does. Returns also which of the
    /// tokens that stay are the text's.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn cut(
        &self,
        text: &str,
        whole: Encoding,
        most: usize,
        left: bool,
    ) -> Result<(Encoding, Range<usize>), TokenizerError> {
        let plain = self.encode(text, false)?;
        let count = whole.ids.len();
        let around = count.saturating_sub(plain.len());
        let mut places = whole.ids.windows(plain.len().max(1));
        let start = places.position(|part| part == plain).unwrap_or(0);
        let end = (start + plain.len()).min(count);
        if count <= most {
            return Ok((whole, start..end));
        }
        let kept = most.saturating_sub(around).min(end - start);
        let inner = if left {
            end - kept..end
        } else {
            start..start + kept
        };
        let stay = (0..start).chain(inner).chain(end..count).take(most);
        let stay: Vec<usize> = stay.collect();
        let offsets = stay.iter().filter_map(|at| whole.offsets.get(*at).copied());
        let cut = Encoding {
            ids: stay.iter().map(|at| whole.ids[*at]).collect(),
            offsets: offsets.collect(),
        };
        Ok((cut, start.min(most)..(start + kept).min(most)))
    }

    /// Encodes two texts as a pair. Of more than `most` tokens the longer text is cut at its end, then both in turn;
    /// before that the second text to `most_second` tokens.
    ///
    /// # Errors
    /// As [`Self::encode`]; a tokenizer that knows no pairs.
    pub fn encode_pair(
        &self,
        first: &str,
        second: &str,
        most: Option<usize>,
        most_second: Option<usize>,
    ) -> Result<Joined, TokenizerError> {
        let Engine::Fast(fast) = &self.engine else {
            let message = "this tokenizer joins no pairs of texts".to_owned();
            return Err(TokenizerError::Encode(message));
        };
        pair(fast, first, second, most, most_second)
            .map_err(|error| TokenizerError::Encode(error.to_string()))
    }
}

fn pair(
    fast: &Fast,
    first: &str,
    second: &str,
    most: Option<usize>,
    most_second: Option<usize>,
) -> tokenizers::Result<Joined> {
    let inner = fast.encoder()?;
    let one = inner.encode(first, false)?;
    let mut other = inner.encode(second, false)?;
    if let Some(most) = most_second {
        other.truncate(most, 0, TruncationDirection::Right);
    }
    let (one, other) = match most {
        None => (one, Some(other)),
        Some(most) => {
            let processor = inner.get_post_processor();
            let added = processor.map_or(0, |processor| processor.added_tokens(true));
            let params = TruncationParams {
                max_length: most.saturating_sub(added),
                strategy: TruncationStrategy::LongestFirst,
                stride: 0,
                direction: TruncationDirection::Right,
            };
            tokenizers::utils::truncation::truncate_encodings(one, Some(other), &params)?
        }
    };
    let joined = inner.post_process(one, other, true)?;
    let second = joined.get_type_ids().iter().position(|kind| *kind == 1);
    Ok(Joined {
        ids: joined.get_ids().to_vec(),
        second: second.unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn tokenizer() -> Tokenizer {
        let token = |name: &str, id: u32| {
            json!({"id": id, "content": name, "single_word": false, "lstrip": false, "rstrip": false,
                   "normalized": false, "special": true})
        };
        let special =
            |name: &str, kind: u32| json!({"SpecialToken": {"id": name, "type_id": kind}});
        let text = |name: &str, kind: u32| json!({"Sequence": {"id": name, "type_id": kind}});
        let pair: Vec<Value> = vec![
            special("[CLS]", 0),
            text("A", 0),
            special("[SEP]", 0),
            text("B", 1),
            special("[SEP]", 1),
        ];
        let words = json!({"a": 0, "b": 1, "c": 2, "d": 3, "[CLS]": 4, "[SEP]": 5});
        let file = json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "decoder": null,
            "added_tokens": [token("[CLS]", 4), token("[SEP]", 5)], "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": {"type": "TemplateProcessing", "single": pair[..3], "pair": pair,
                "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [4], "tokens": ["[CLS]"]},
                                   "[SEP]": {"id": "[SEP]", "ids": [5], "tokens": ["[SEP]"]}}},
            "model": {"type": "WordLevel", "vocab": words, "unk_token": "a"},
        });
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tokenizer.json"), file.to_string()).unwrap();
        Tokenizer::load(folder.path()).unwrap()
    }

    #[test]
    fn a_text_keeps_what_stands_around_it() {
        let tokenizer = tokenizer();
        let cut = |most, left| {
            tokenizer
                .encode_within("a b c d", true, most, left)
                .unwrap()
        };
        assert_eq!(cut(6, false), [4, 0, 1, 2, 3, 5]);
        assert_eq!(cut(4, false), [4, 0, 1, 5]);
        assert_eq!(cut(4, true), [4, 2, 3, 5]);
        assert_eq!(cut(2, false), [4, 5]);
        assert_eq!(cut(1, false), [4]);
        let plain = tokenizer.encode_within("a b c d", false, 2, true).unwrap();
        assert_eq!(plain, [2, 3]);
        let whole = tokenizer.encode_with_offsets("a b c d", true).unwrap();
        let (cut, text) = tokenizer.cut("a b c d", whole, 4, true).unwrap();
        assert_eq!(cut.ids, [4, 2, 3, 5]);
        assert_eq!(cut.offsets, [(0, 0), (4, 5), (6, 7), (0, 0)]);
        assert_eq!(text, 1..3);
    }

    #[test]
    fn pairs_are_joined_and_the_longer_is_cut() {
        let tokenizer = tokenizer();
        let joined = tokenizer.encode_pair("a b", "c d", None, None).unwrap();
        assert_eq!((joined.ids, joined.second), (vec![4, 0, 1, 5, 2, 3, 5], 4));
        let joined = tokenizer.encode_pair("a", "b c d", Some(6), None).unwrap();
        assert_eq!((joined.ids, joined.second), (vec![4, 0, 5, 1, 2, 5], 3));
        let joined = tokenizer
            .encode_pair("a b", "b c d", None, Some(1))
            .unwrap();
        assert_eq!(joined.ids, [4, 0, 1, 5, 1, 5]);
    }
}
