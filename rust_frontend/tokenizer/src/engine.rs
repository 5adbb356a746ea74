//! What encodes texts: byte-level pairs, the `tokenizers` crate for other kinds of tokenizer.json, or byte pairs by ranks.

use std::collections::HashMap;
use std::sync::OnceLock;

use tokenizers::tokenizer::{Model, OffsetType, PreTokenizer};
use tokenizers::{AddedVocabulary, PostProcessorWrapper};

use crate::byte_level::{ByteLevel, Level};
use crate::cache::EncodingCache;
use crate::crate_file::Later;
use crate::encoding::Encoding;
use crate::error::TokenizerError;
use crate::ranked::RankedBpe;

/// An encoder of one vocabulary.
#[derive(Debug)]
pub(crate) enum Engine {
    /// tokenizer.json.
    Fast(Box<Fast>),
    /// tiktoken and tekken files.
    Ranked(Box<RankedBpe>),
}

/// A tokenizer.json as the `tokenizers` crate reads it, and as octavo does where it is of the common kind.
#[derive(Debug)]
pub(crate) struct Fast {
    /// Does not encode where `later` does.
    pub(crate) inner: tokenizers::Tokenizer,
    /// What encodes for those who want to know the places of tokens; `None`: `inner` does.
    later: Option<Later>,
    /// Gives the ids that `inner` gives. `None` for kinds that octavo leaves to it.
    direct: Option<ByteLevel>,
    /// Ids that the model wants in front of a text and behind it; `None` where they depend on the text.
    around: Option<(Vec<u32>, Vec<u32>)>,
    /// Its added tokens with the special ones left out; made when it is first needed.
    ordinary: OnceLock<AddedVocabulary>,
}

impl Fast {
    /// `inner` may lack the rules of joining if `later` has them and `level` is what encodes.
    pub(crate) fn new(
        inner: tokenizers::Tokenizer,
        later: Option<Later>,
        level: Option<Level>,
    ) -> Self {
        let direct = level.and_then(|level| {
            let added = inner.get_added_tokens_decoder();
            ByteLevel::new(level, added.iter().map(|(id, token)| (*id, token)))
        });
        Self {
            around: around(&inner),
            inner,
            later,
            direct,
            ordinary: OnceLock::new(),
        }
    }

    /// Encodes a text; special tokens that stand in it are recognised.
    fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        match &self.direct {
            Some(direct) => direct.encode(text, true).map_err(TokenizerError::Encode),
            None => self.encode_around(text, false),
        }
    }

    /// Encodes a text by the crate, with the tokens that the model adds where they are asked for.
    fn encode_around(&self, text: &str, around: bool) -> Result<Vec<u32>, TokenizerError> {
        match self.encoder()?.encode_fast(text, around) {
            Ok(encoding) => Ok(encoding.get_ids().to_vec()),
            Err(error) => Err(TokenizerError::Encode(error.to_string())),
        }
    }

    /// The crate's tokenizer with all its rules.
    pub(crate) fn encoder(&self) -> Result<&tokenizers::Tokenizer, TokenizerError> {
        match &self.later {
            Some(later) => later.get().map_err(TokenizerError::Encode),
            None => Ok(&self.inner),
        }
    }

    /// Encodes a text as if no special token existed.
    fn encode_ordinary(
        &self,
        text: &str,
        offsets: OffsetType,
    ) -> Result<tokenizers::Encoding, TokenizerError> {
        let encoder = self.encoder()?;
        self.split_ordinary(encoder, text, offsets)
            .map_err(|error| TokenizerError::Encode(error.to_string()))
    }

    fn split_ordinary(
        &self,
        encoder: &tokenizers::Tokenizer,
        text: &str,
        offsets: OffsetType,
    ) -> tokenizers::Result<tokenizers::Encoding> {
        let added = self.ordinary.get_or_init(|| {
            let mut added = self.inner.get_added_vocabulary().clone();
            added.set_encode_special_tokens(true);
            added
        });
        let mut splits = added.extract_and_normalize(self.inner.get_normalizer(), text);
        if let Some(splitter) = self.inner.get_pre_tokenizer() {
            splitter.pre_tokenize(&mut splits)?;
        }
        splits.tokenize(|split| encoder.get_model().tokenize(split.get()))?;
        splits.into_encoding(None, 0, offsets)
    }

    /// Whether a post-processor adds tokens.
    fn adds_tokens(&self) -> bool {
        !matches!(
            self.inner.get_post_processor(),
            None | Some(PostProcessorWrapper::ByteLevel(_))
        )
    }

    /// Whether a text may be cut at added tokens: not where the splitter treats the first part differently.
    fn cuts_anywhere(&self) -> bool {
        let splitter = serde_json::to_string(&self.inner.get_pre_tokenizer());
        splitter.is_ok_and(|splitter| !splitter.contains("\"prepend_scheme\":\"first\""))
    }

    fn cache(&self) -> Option<EncodingCache> {
        let added = self.inner.get_added_tokens_decoder();
        let tokens: Vec<(String, bool)> = added
            .values()
            .filter(|token| !token.normalized && !token.content.is_empty())
            .map(|token| {
                let plain = token.special && !token.lstrip && !token.rstrip && !token.single_word;
                (token.content.clone(), plain)
            })
            .collect();
        self.cuts_anywhere()
            .then(|| EncodingCache::new(&tokens))
            .flatten()
    }
}

impl Engine {
    /// Encodes a text; special tokens that stand in it are recognised. `around` asks for those that the model adds.
    pub(crate) fn encode(
        &self,
        text: &str,
        around: bool,
        cache: Option<&EncodingCache>,
    ) -> Result<Vec<u32>, TokenizerError> {
        match self {
            Self::Fast(fast) => {
                let encode = |text: &str| fast.encode(text);
                let inside = || match cache {
                    Some(cache) => cache.encode(text, encode),
                    None => encode(text),
                };
                match (around && fast.adds_tokens(), &fast.around) {
                    (false, _) => inside(),
                    (true, Some((before, behind))) => {
                        Ok([before.as_slice(), &inside()?, behind].concat())
                    }
                    (true, None) => fast.encode_around(text, true),
                }
            }
            Self::Ranked(bpe) => {
                let encode = |text: &str| bpe.encode(text, true).map_err(TokenizerError::Encode);
                match cache {
                    Some(cache) => cache.encode(text, encode),
                    None => encode(text),
                }
            }
        }
    }

    /// Encodes a text in which special tokens are text like any other.
    pub(crate) fn encode_ordinary(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        match self {
            Self::Fast(fast) => match &fast.direct {
                Some(direct) => direct.encode(text, false).map_err(TokenizerError::Encode),
                None => fast
                    .encode_ordinary(text, OffsetType::None)
                    .map(|encoding| encoding.get_ids().to_vec()),
            },
            Self::Ranked(bpe) => bpe.encode(text, false).map_err(TokenizerError::Encode),
        }
    }

    /// Encodes a text with the places of its tokens.
    pub(crate) fn encode_with_offsets(
        &self,
        text: &str,
        around: bool,
    ) -> Result<Encoding, TokenizerError> {
        match self {
            Self::Fast(fast) => {
                let encoding = fast
                    .encoder()?
                    .encode_char_offsets(text, around)
                    .map_err(|error| TokenizerError::Encode(error.to_string()))?;
                Ok(Encoding {
                    ids: encoding.get_ids().to_vec(),
                    offsets: encoding.get_offsets().to_vec(),
                })
            }
            Self::Ranked(bpe) => placed(bpe, text, true),
        }
    }

    /// Encodes a text as [`Self::encode_ordinary`] does, with the places of its tokens.
    pub(crate) fn encode_ordinary_with_offsets(
        &self,
        text: &str,
    ) -> Result<Encoding, TokenizerError> {
        match self {
            Self::Fast(fast) => {
                let encoding = fast.encode_ordinary(text, OffsetType::Char)?;
                Ok(Encoding {
                    ids: encoding.get_ids().to_vec(),
                    offsets: encoding.get_offsets().to_vec(),
                })
            }
            Self::Ranked(bpe) => placed(bpe, text, false),
        }
    }

    /// The id of a token.
    pub(crate) fn token_to_id(&self, token: &str) -> Option<u32> {
        match self {
            Self::Fast(fast) => fast.inner.token_to_id(token),
            Self::Ranked(bpe) => bpe.token_to_id(token),
        }
    }

    /// Ids and texts of special tokens.
    pub(crate) fn special_texts(&self) -> Vec<(u32, String)> {
        match self {
            Self::Fast(fast) => {
                let added = fast.inner.get_added_tokens_decoder();
                let special = added.into_iter().filter(|(_, token)| token.special);
                special.map(|(id, token)| (id, token.content)).collect()
            }
            Self::Ranked(bpe) => bpe.special_texts(),
        }
    }

    /// Tokens that stand apart from text, by id: added ones, but for those of white space.
    pub(crate) fn apart(&self) -> HashMap<u32, String> {
        match self {
            Self::Fast(fast) => {
                let added = fast.inner.get_added_tokens_decoder().into_iter();
                added
                    .filter(|(_, token)| token.special || !token.content.trim().is_empty())
                    .map(|(id, token)| (id, token.content))
                    .collect()
            }
            Self::Ranked(bpe) => bpe.special_texts().into_iter().collect(),
        }
    }

    /// A cache for this encoder; `None` where texts cannot be cut.
    pub(crate) fn cache(&self) -> Option<EncodingCache> {
        match self {
            Self::Fast(fast) => fast.cache(),
            Self::Ranked(bpe) => {
                let special = bpe
                    .recognised()
                    .iter()
                    .map(|(token, _)| (token.clone(), true));
                EncodingCache::new(&special.collect::<Vec<_>>())
            }
        }
    }
}

/// The ids that a post-processor puts in front of a text and behind it.
fn around(inner: &tokenizers::Tokenizer) -> Option<(Vec<u32>, Vec<u32>)> {
    const PROBE: &str = "a b";
    let ids = |around| Some(inner.encode_fast(PROBE, around).ok()?.get_ids().to_vec());
    let (plain, whole): (Vec<u32>, Vec<u32>) = (ids(false)?, ids(true)?);
    let mut places = whole.windows(plain.len().max(1)).enumerate();
    let (start, _) = places.find(|(_, part)| *part == plain)?;
    let behind = whole[start + plain.len()..].to_vec();
    Some((whole[..start].to_vec(), behind))
}

/// Encodes a text by ranks, with the places of its tokens in characters.
fn placed(bpe: &RankedBpe, text: &str, specials: bool) -> Result<Encoding, TokenizerError> {
    let mut encoding = Encoding::default();
    // Characters that begin before the byte where the last token ended.
    let (mut done, mut begun) = (0, 0);
    bpe.each(text, specials, |id, bytes| {
        begun += begins(&text.as_bytes()[done..bytes.start]);
        let start = begun - usize::from(!text.is_char_boundary(bytes.start));
        begun += begins(&text.as_bytes()[bytes.start..bytes.end]);
        done = bytes.end;
        encoding.ids.push(id);
        encoding.offsets.push((start, begun));
    })
    .map_err(TokenizerError::Encode)?;
    Ok(encoding)
}

/// How many characters begin in these bytes of a text.
fn begins(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .filter(|byte| !matches!(byte, 0x80..=0xBF))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_model_adds_is_found_out() {
        let added = json!({"id": 2, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                           "normalized": false, "special": true});
        let special = json!({"<s>": {"id": "<s>", "ids": [2], "tokens": ["<s>"]}});
        let begin = json!({"SpecialToken": {"id": "<s>", "type_id": 0}});
        let text = json!({"Sequence": {"id": "A", "type_id": 0}});
        for (single, wanted) in [
            (vec![&begin, &text], (vec![2], vec![])),
            (vec![&begin, &text, &begin, &begin], (vec![2], vec![2, 2])),
        ] {
            let processor = json!({"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": special});
            let file = json!({
                "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "decoder": null,
                "added_tokens": [added], "pre_tokenizer": {"type": "Whitespace"}, "post_processor": processor,
                "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "<s>": 2}, "unk_token": "<s>"},
            });
            let inner = tokenizers::Tokenizer::from_bytes(file.to_string()).unwrap();
            assert_eq!(around(&inner), Some(wanted.clone()));
            let engine = Engine::Fast(Box::new(Fast::new(inner, None, None)));
            let ids = [wanted.0, vec![1, 0], wanted.1].concat();
            assert_eq!(engine.encode("b a", true, None).unwrap(), ids);
        }
    }
}
