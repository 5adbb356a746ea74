//! The tokenizer of one model.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::cache::EncodingCache;
use crate::config::SpecialTokens;
use crate::decoder::IncrementalDecoder;
use crate::encoding::Encoding;
use crate::engine::Engine;
use crate::error::TokenizerError;
use crate::pieces::Pieces;

/// Visible tokens before an output that can matter to its first character.
const CONTEXT: usize = 4;

/// What one id stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// Bytes of text.
    Bytes(Vec<u8>),
    /// A token apart from text, by its name.
    Special(String),
}

/// Text to ids and back. Shared between threads.
#[derive(Debug)]
pub struct Tokenizer {
    pub(crate) engine: Engine,
    pub(crate) cache: Option<EncodingCache>,
    /// Of texts in which nothing is special.
    pub(crate) whole: EncodingCache,
    pub(crate) pieces: Arc<Pieces>,
    pub(crate) special: SpecialTokens,
    pub(crate) config: Map<String, Value>,
    /// Ids that tokenizer_config.json wants around a text and tokenizer.json does not add.
    pub(crate) bos: Option<u32>,
    pub(crate) eos: Option<u32>,
    /// Most bytes of text that one token stands for, where there is such a number.
    pub(crate) longest: Option<usize>,
    /// The version of the tekken file, where it is one.
    pub(crate) tekken: Option<u32>,
}

impl Tokenizer {
    /// Encodes a text. Special tokens that stand in it are recognised (in tekken vocabularies none are). With
    /// `add_special_tokens` the model's own (such as a first token) are added; chat templates bring them, so chats go
    /// without.
    ///
    /// What stands between special tokens is kept for a while: a text that begins as an earlier one costs what is new in it.
    ///
    /// # Errors
    /// What the model cannot express, such as an unknown character where there is no unknown token.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = self
            .engine
            .encode(text, add_special_tokens, self.cache.as_ref())?;
        if add_special_tokens {
            self.surround(&mut ids);
        }
        Ok(ids)
    }

    /// Encodes a text in which special tokens are text like any other, and adds none.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_ordinary(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.whole
            .encode(text, |text| self.engine.encode_ordinary(text))
    }

    /// Encodes a text as [`Self::encode`] does, with the place in the text that each token stands for.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_with_offsets(
        &self,
        text: &str,
        add_special_tokens: bool,
    ) -> Result<Encoding, TokenizerError> {
        let mut encoding = self.engine.encode_with_offsets(text, add_special_tokens)?;
        if add_special_tokens {
            if self
                .bos
                .is_some_and(|bos| encoding.ids.first() != Some(&bos))
            {
                encoding.offsets.insert(0, (0, 0));
            }
            self.surround(&mut encoding.ids);
            encoding.offsets.resize(encoding.ids.len(), (0, 0));
        }
        Ok(encoding)
    }

    /// Encodes a text as [`Self::encode_ordinary`] does, with the place in the text that each token stands for.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_ordinary_with_offsets(&self, text: &str) -> Result<Encoding, TokenizerError> {
        self.engine.encode_ordinary_with_offsets(text)
    }

    /// Adds the tokens that tokenizer_config.json wants around a text, where they are not there.
    fn surround(&self, ids: &mut Vec<u32>) {
        if let Some(bos) = self.bos.filter(|bos| ids.first() != Some(bos)) {
            ids.insert(0, bos);
        }
        if let Some(eos) = self.eos.filter(|eos| ids.last() != Some(eos)) {
            ids.push(eos);
        }
    }

    /// A number of tokens that `encode` gives at least; cheap, and 0 where nothing can be said.
    pub fn least_tokens(&self, text: &str) -> usize {
        self.longest.map_or(0, |longest| text.len() / longest)
    }

    /// Decodes ids at once, special tokens left out.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut text = String::new();
        let mut decoder = self.decoder(&[]);
        decoder.push(ids, &mut text);
        decoder.finish(&mut text);
        text
    }

    /// The bytes that a token stands for, a special one too; `None` for ids that nothing stands for.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.pieces.any(id).map(|piece| piece.bytes)
    }

    /// Decodes ids at once, special tokens among them.
    ///
    /// # Errors
    /// What the tokenizer's decoder cannot join.
    pub fn decode_all(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        match &self.engine {
            Engine::Fast(fast) => fast
                .inner
                .decode(ids, false)
                .map_err(|error| TokenizerError::Encode(error.to_string())),
            Engine::Ranked(_) => {
                let bytes = ids.iter().filter_map(|id| self.pieces.whole(*id));
                Ok(String::from_utf8_lossy(&bytes.collect::<Vec<_>>().concat()).into_owned())
            }
        }
    }

    /// Starts decoding after `context` (see [`Self::context`]); empty where the text begins here.
    pub fn decoder(&self, context: &[u32]) -> IncrementalDecoder {
        IncrementalDecoder::new(Arc::clone(&self.pieces), context)
    }

    /// The last ids of a prompt that its continuation depends on: a character that the prompt leaves unfinished, and
    /// whether anything stands before the output at all.
    pub fn context(&self, prompt: &[u32]) -> Vec<u32> {
        let shown = |id: &&u32| {
            self.pieces
                .visible(**id)
                .is_some_and(|piece| !piece.bytes.is_empty())
        };
        let mut tail: Vec<u32> = prompt
            .iter()
            .rev()
            .filter(shown)
            .take(CONTEXT)
            .copied()
            .collect();
        tail.reverse();
        tail
    }

    /// Special tokens by name.
    pub fn special(&self) -> &SpecialTokens {
        &self.special
    }

    /// The id of a token.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.engine.token_to_id(token)
    }

    /// The token of an id as its vocabulary writes it; bytes that are no text become U+FFFD. `None` where there is none.
    pub fn id_to_token(&self, id: u32) -> Option<String> {
        match &self.engine {
            Engine::Fast(fast) => fast.inner.id_to_token(id),
            Engine::Ranked(_) => self
                .pieces
                .whole(id)
                .map(|bytes| String::from_utf8_lossy(bytes).into_owned()),
        }
    }

    /// Ids and texts of the tokens that clients do not see.
    pub fn special_texts(&self) -> Vec<(u32, String)> {
        self.engine.special_texts()
    }

    /// One more than the largest id.
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// What each id stands for in a text that goes on: its bytes, or its name where it is a token apart from text. All
    /// added tokens are such, but for those of white space. Ids that stand for nothing have no bytes.
    pub fn words(&self) -> Vec<Word> {
        let mut apart = self.engine.apart();
        let ids = 0..u32::try_from(self.pieces.len()).unwrap_or(u32::MAX);
        ids.map(|id| match apart.remove(&id) {
            Some(name) => Word::Special(name),
            None => Word::Bytes(
                self.pieces
                    .visible(id)
                    .map(|piece| piece.bytes.to_vec())
                    .unwrap_or_default(),
            ),
        })
        .collect()
    }

    /// The version of the tekken file that this tokenizer is of; `None` for all others.
    pub fn tekken_version(&self) -> Option<u32> {
        self.tekken
    }

    /// tokenizer_config.json; empty where there is none.
    pub fn config(&self) -> &Map<String, Value> {
        &self.config
    }
}
