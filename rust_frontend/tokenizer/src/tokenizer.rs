//! The tokenizer of one model.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::bound::longest_token;
use crate::config::SpecialTokens;
use crate::decoder::IncrementalDecoder;
use crate::encoding::Encoding;
use crate::error::TokenizerError;
use crate::pieces::Pieces;
use crate::plan::Plan;

/// No vocabulary is larger; a larger id means damage, and would cost memory.
const MAX_VOCAB: usize = 1 << 24;

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
    inner: tokenizers::Tokenizer,
    pieces: Arc<Pieces>,
    special: SpecialTokens,
    config: Map<String, Value>,
    /// Ids that tokenizer_config.json wants around a text and tokenizer.json does not add.
    bos: Option<u32>,
    eos: Option<u32>,
    /// Most bytes of text that one token stands for, where there is such a number.
    longest: Option<usize>,
}

impl Tokenizer {
    /// Loads tokenizer.json and, where they are there, `tokenizer_config.json` and `special_tokens_map.json` of a folder.
    ///
    /// # Errors
    /// No tokenizer.json, a file that is damaged, a decoder that is not supported.
    pub fn load(dir: &Path) -> Result<Self, TokenizerError> {
        let path = dir.join("tokenizer.json");
        let bytes = read(&path)?.ok_or_else(|| TokenizerError::Missing(path.clone()))?;
        let config = object(&dir.join("tokenizer_config.json"))?;
        let fallback = object(&dir.join("special_tokens_map.json"))?;
        Self::from_parts(&path, &bytes, config, &fallback)
    }

    /// Makes a tokenizer of the contents of its files; `path` is for messages.
    fn from_parts(
        path: &Path,
        bytes: &[u8],
        config: Map<String, Value>,
        fallback: &Map<String, Value>,
    ) -> Result<Self, TokenizerError> {
        let damaged = |reason: String| TokenizerError::Damaged(path.to_owned(), reason);
        let mut inner =
            tokenizers::Tokenizer::from_bytes(bytes).map_err(|error| damaged(error.to_string()))?;
        // What to cut is the server's business, and padding would add tokens to prompts.
        inner
            .with_truncation(None)
            .map_err(|error| damaged(error.to_string()))?;
        inner.with_padding(None);
        let decoder = serde_json::to_value(inner.get_decoder())
            .map_err(|error| damaged(error.to_string()))?;
        let plan = Plan::read(&decoder)?;
        let tokens = tokens(&inner).map_err(|id| damaged(format!("a token has the id {id}")))?;
        let pieces = Arc::new(Pieces::build(plan, &tokens));
        let special = SpecialTokens::read(&config, fallback);
        let around = |flag: &str, name: &str| {
            let wanted = config.get(flag) == Some(&Value::Bool(true));
            special
                .get(name)
                .filter(|_| wanted)
                .and_then(|token| inner.token_to_id(token))
        };
        let (bos, eos) = (
            around("add_bos_token", "bos_token"),
            around("add_eos_token", "eos_token"),
        );
        Ok(Self {
            pieces,
            special,
            bos,
            eos,
            config,
            longest: longest_token(&inner),
            inner,
        })
    }

    /// Encodes a text. Special tokens that stand in it are recognised. With `add_special_tokens` the model's own
    /// (such as a first token) are added; chat templates bring them, so chats go without.
    ///
    /// # Errors
    /// What the model cannot express, such as an unknown character where there is no unknown token.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, TokenizerError> {
        let encoding = self
            .inner
            .encode_fast(text, add_special_tokens)
            .map_err(|error| TokenizerError::Encode(error.to_string()))?;
        let mut ids = encoding.get_ids().to_vec();
        if add_special_tokens {
            self.surround(&mut ids);
        }
        Ok(ids)
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
        let encoding = self
            .inner
            .encode_char_offsets(text, add_special_tokens)
            .map_err(|error| TokenizerError::Encode(error.to_string()))?;
        let mut offsets = encoding.get_offsets().to_vec();
        let mut ids = encoding.get_ids().to_vec();
        if add_special_tokens {
            if self.bos.is_some_and(|bos| ids.first() != Some(&bos)) {
                offsets.insert(0, (0, 0));
            }
            self.surround(&mut ids);
            offsets.resize(ids.len(), (0, 0));
        }
        Ok(Encoding { ids, offsets })
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
        self.inner.token_to_id(token)
    }

    /// Ids and texts of the tokens that clients do not see.
    pub fn special_texts(&self) -> Vec<(u32, String)> {
        let added = self.inner.get_added_tokens_decoder();
        added
            .into_iter()
            .filter(|(_, token)| token.special)
            .map(|(id, token)| (id, token.content))
            .collect()
    }

    /// One more than the largest id.
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// What each id stands for in a text that goes on: its bytes, or its name where it is a token apart from text. All
    /// added tokens are such, but for those of white space. Ids that stand for nothing have no bytes.
    pub fn words(&self) -> Vec<Word> {
        let added = self.inner.get_added_tokens_decoder();
        let ids = 0..u32::try_from(self.pieces.len()).unwrap_or(u32::MAX);
        ids.map(|id| match added.get(&id) {
            Some(token) if token.special || !token.content.trim().is_empty() => {
                Word::Special(token.content.clone())
            }
            _ => Word::Bytes(
                self.pieces
                    .visible(id)
                    .map(|piece| piece.bytes.to_vec())
                    .unwrap_or_default(),
            ),
        })
        .collect()
    }

    /// tokenizer_config.json; empty where there is none.
    pub fn config(&self) -> &Map<String, Value> {
        &self.config
    }
}

/// All tokens by id, with whether they are special: added ones first, as decoding looks them up. `Err` is an id beyond all
/// vocabularies.
fn tokens(inner: &tokenizers::Tokenizer) -> Result<Vec<Option<(String, bool)>>, u32> {
    let vocab = inner.get_vocab(false);
    let added = inner.get_added_tokens_decoder();
    let hidden: std::collections::HashSet<&str> = added
        .values()
        .filter(|token| token.special)
        .map(|token| token.content.as_str())
        .collect();
    let last = vocab
        .values()
        .chain(added.keys())
        .copied()
        .max()
        .unwrap_or(0);
    if last as usize >= MAX_VOCAB {
        return Err(last);
    }
    let mut tokens = vec![None; last as usize + 1];
    let added_pairs = added.iter().map(|(id, token)| (token.content.clone(), *id));
    for (token, id) in vocab.into_iter().chain(added_pairs) {
        let special = hidden.contains(token.as_str());
        tokens[id as usize] = Some((token, special));
    }
    Ok(tokens)
}

/// Reads a file; `None` where there is none.
fn read(path: &Path) -> Result<Option<Vec<u8>>, TokenizerError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(TokenizerError::Unreadable(PathBuf::from(path), error)),
    }
}

/// Reads a JSON object; empty where there is no such file.
fn object(path: &Path) -> Result<Map<String, Value>, TokenizerError> {
    let Some(bytes) = read(path)? else {
        return Ok(Map::new());
    };
    serde_json::from_slice(&bytes)
        .map_err(|error| TokenizerError::Damaged(path.to_owned(), error.to_string()))
}
