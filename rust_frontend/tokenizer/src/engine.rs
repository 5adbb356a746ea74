//! What encodes texts: the `tokenizers` crate, or byte pairs by ranks.

use std::collections::HashMap;
use std::sync::OnceLock;

use tokenizers::tokenizer::{Model, OffsetType, PreTokenizer};
use tokenizers::{AddedVocabulary, PostProcessorWrapper};

use crate::cache::EncodingCache;
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

/// A tokenizer of the `tokenizers` crate.
#[derive(Debug)]
pub(crate) struct Fast {
    pub(crate) inner: tokenizers::Tokenizer,
    /// Its added tokens with the special ones left out; made when it is first needed.
    ordinary: OnceLock<AddedVocabulary>,
}

impl Fast {
    pub(crate) fn new(inner: tokenizers::Tokenizer) -> Self {
        Self {
            inner,
            ordinary: OnceLock::new(),
        }
    }

    /// Encodes a text as if no special token existed.
    fn encode_ordinary(
        &self,
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
        splits.tokenize(|split| self.inner.get_model().tokenize(split.get()))?;
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
                let around = around && fast.adds_tokens();
                let encode = |text: &str| match fast.inner.encode_fast(text, around) {
                    Ok(encoding) => Ok(encoding.get_ids().to_vec()),
                    Err(error) => Err(TokenizerError::Encode(error.to_string())),
                };
                match cache.filter(|_| !around) {
                    Some(cache) => cache.encode(text, encode),
                    None => encode(text),
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
            Self::Fast(fast) => fast
                .encode_ordinary(text, OffsetType::None)
                .map(|encoding| encoding.get_ids().to_vec())
                .map_err(|error| TokenizerError::Encode(error.to_string())),
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
                    .inner
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
                let encoding = fast
                    .encode_ordinary(text, OffsetType::Char)
                    .map_err(|error| TokenizerError::Encode(error.to_string()))?;
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
