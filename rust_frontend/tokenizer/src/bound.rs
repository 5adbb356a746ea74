//! How many tokens a text has at least, without encoding it.

use std::collections::HashMap;

use serde_json::Value;
use tokenizers::models::ModelWrapper;

use crate::alphabet;

/// NFC may make one character of several: of no more than this many bytes for each that is left.
const COMPOSED: usize = 4;

/// Of a character of two bytes one is left where first bytes have no tokens; of longer ones there are more.
const HALF: usize = 2;

/// The most bytes of text that one token can stand for; `None` where a token may stand for any number: with normalizers
/// and splitters that drop characters, with unknown characters that melt together or vanish, with added tokens that take
/// the white space beside them.
pub(crate) fn longest_token(inner: &tokenizers::Tokenizer) -> Option<usize> {
    let ModelWrapper::BPE(model) = inner.get_model() else {
        return None;
    };
    let splitter = serde_json::to_value(inner.get_pre_tokenizer()).ok()?;
    if model.unk_token.is_some() || !keeps_all(&splitter) {
        return None;
    }
    let added = inner.get_added_tokens_decoder();
    if added.values().any(|token| token.lstrip || token.rstrip) {
        return None;
    }
    let normalizer = serde_json::to_value(inner.get_normalizer()).ok()?;
    let factor = match normalizer.get("type").and_then(Value::as_str) {
        None if normalizer.is_null() => 1,
        Some("NFC") => COMPOSED,
        _ => return None,
    };
    let vocab = inner.get_vocab(true);
    let factor = factor * dropped(&vocab)?;
    // A character of a byte-level token stands for one byte, so that its text is never the shorter one.
    let longest = vocab.keys().map(String::len).max()?;
    Some(longest.max(1) * factor)
}

/// How many bytes of text there are at most for each that has a token: those that have none are dropped. `None` where whole
/// characters are.
fn dropped(vocab: &HashMap<String, u32>) -> Option<usize> {
    let missing =
        alphabet::letters().filter(|(letter, _)| !vocab.contains_key(&letter.to_string()));
    // Some never stand in a text, and control characters in none that is long because of them: SmolLM2's vocabulary lacks some.
    let odd = |byte: u8| matches!(byte, 0..=8 | 0x0E..=0x1F | 0xC0 | 0xC1 | 0xF5..);
    let mut missing = missing.filter(|(_, byte)| !odd(*byte));
    missing.try_fold(1, |_, (_, byte)| (byte >= 0xC2).then_some(HALF))
}

/// Whether a splitter is byte level and drops nothing.
fn keeps_all(splitter: &Value) -> bool {
    let text = splitter.to_string();
    text.contains("\"type\":\"ByteLevel\"")
        && !text.contains("\"Removed\"")
        && !text.contains("\"Whitespace")
        && !text.contains("\"CharDelimiterSplit\"")
}
