//! A tokenizer from the files of a model's folder.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use serde_json::{Map, Value, json};

use crate::bound::longest_token;
use crate::byte_level::Level;
use crate::cache::EncodingCache;
use crate::config::SpecialTokens;
use crate::crate_file::{self, Later};
use crate::engine::{Engine, Fast};
use crate::error::TokenizerError;
use crate::pieces::{Pieces, Token};
use crate::plan::Plan;
use crate::tokenizer::Tokenizer;
use crate::{tekken, tiktoken};

/// No vocabulary is larger; a larger id means damage, and would cost memory.
const MAX_VOCAB: usize = 1 << 24;

/// The parts of a tokenizer that a file gives.
struct Parts {
    engine: Engine,
    pieces: Pieces,
    longest: Option<usize>,
    /// Set for tekken files.
    tekken: Option<u32>,
}

impl Tokenizer {
    /// Loads the tokenizer of a folder: tokenizer.json, or else tekken.json, or else a tiktoken file whose name says how it
    /// splits texts; and `tokenizer_config.json` and `special_tokens_map.json`, where they are there.
    ///
    /// # Errors
    /// No such file, a file that is damaged, a decoder that is not supported.
    pub fn load(dir: &Path) -> Result<Self, TokenizerError> {
        let mut config = object(&dir.join("tokenizer_config.json"))?;
        let fallback = object(&dir.join("special_tokens_map.json"))?;
        let parts = parts(dir, &config)?;
        if parts.tekken.is_some() {
            // tekken files name these by their texts.
            for (name, token) in [
                ("bos_token", "<s>"),
                ("eos_token", "</s>"),
                ("unk_token", "<unk>"),
                ("pad_token", "<pad>"),
            ] {
                config.entry(name).or_insert_with(|| json!(token));
            }
        }
        Ok(Self::new(
            parts.engine,
            parts.pieces,
            parts.longest,
            parts.tekken,
            config,
            &fallback,
        ))
    }

    fn new(
        engine: Engine,
        pieces: Pieces,
        longest: Option<usize>,
        tekken: Option<u32>,
        config: Map<String, Value>,
        fallback: &Map<String, Value>,
    ) -> Self {
        let special = SpecialTokens::read(&config, fallback);
        let around = |flag: &str, name: &str| {
            let wanted = config.get(flag) == Some(&Value::Bool(true));
            let token = special.get(name).filter(|_| wanted);
            token.and_then(|token| engine.token_to_id(token))
        };
        Self {
            bos: around("add_bos_token", "bos_token"),
            eos: around("add_eos_token", "eos_token"),
            cache: engine.cache(),
            whole: EncodingCache::of_whole_texts(),
            pieces: Arc::new(pieces),
            engine,
            special,
            config,
            longest,
            tekken,
        }
    }
}

fn parts(dir: &Path, config: &Map<String, Value>) -> Result<Parts, TokenizerError> {
    let path = dir.join("tokenizer.json");
    if let Some(bytes) = read(&path)? {
        return fast(&path, bytes);
    }
    let path = dir.join("tekken.json");
    if let Some(bytes) = read(&path)? {
        let file = tekken::read(&bytes, MAX_VOCAB)
            .map_err(|reason| TokenizerError::Damaged(path, reason))?;
        return Ok(Parts {
            longest: Some(file.bpe.longest()),
            engine: Engine::Ranked(Box::new(file.bpe)),
            pieces: Pieces::build(Plan::ByteLevel, &file.tokens),
            tekken: Some(file.version),
        });
    }
    for name in tiktoken::names() {
        let path = dir.join(name);
        let Some(bytes) = read(&path)?.filter(|bytes| tiktoken::recognises(bytes)) else {
            continue;
        };
        let file = tiktoken::read(name, &bytes, config, MAX_VOCAB);
        let file = file.map_err(|reason| TokenizerError::Damaged(path, reason))?;
        return Ok(Parts {
            longest: Some(file.bpe.longest()),
            engine: Engine::Ranked(Box::new(file.bpe)),
            pieces: Pieces::build(Plan::ByteLevel, &file.tokens),
            tekken: None,
        });
    }
    Err(TokenizerError::Missing(dir.to_owned()))
}

/// Reads a tokenizer.json.
fn fast(path: &Path, bytes: Vec<u8>) -> Result<Parts, TokenizerError> {
    let damaged = |reason: String| TokenizerError::Damaged(path.to_owned(), reason);
    // Both read the file at the same time: a start waits for this.
    let (light, level) = thread::scope(|scope| {
        let level = scope.spawn(|| Level::read(&bytes));
        let light = crate_file::without_rules(&bytes);
        let level = level.join().unwrap_or_else(|panic| resume_unwind(panic));
        (light, level)
    });
    let (inner, later) = match (light, &level) {
        (Some(light), Some(_)) => (light, Some(Later::new(bytes))),
        _ => (crate_file::whole(&bytes), None),
    };
    let inner = inner.map_err(damaged)?;
    let decoder =
        serde_json::to_value(inner.get_decoder()).map_err(|error| damaged(error.to_string()))?;
    let plan = Plan::read(&decoder)?;
    let tokens = tokens(&inner).map_err(|id| damaged(format!("a token has the id {id}")))?;
    Ok(Parts {
        pieces: Pieces::build(plan, &tokens),
        longest: longest_token(&inner),
        engine: Engine::Fast(Box::new(Fast::new(inner, later, level))),
        tekken: None,
    })
}

/// All tokens by id, with whether they are special: added ones first, as decoding looks them up. `Err` is an id beyond all
/// vocabularies.
fn tokens(inner: &tokenizers::Tokenizer) -> Result<Vec<Option<Token>>, u32> {
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
        tokens[id as usize] = Some(Token::text(token, special));
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
