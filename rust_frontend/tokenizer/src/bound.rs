//! How many tokens a text has at least, without encoding it.

use serde_json::Value;
use tokenizers::models::ModelWrapper;

/// NFC may make one character of several: of no more than this many bytes for each that is left.
const COMPOSED: usize = 4;

/// The most bytes of text that one token can stand for; `None` where a token may stand for any number: with normalizers
/// and splitters that drop characters, with unknown characters that melt together, with added tokens that take
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
    // A character of a byte-level token stands for one byte, so that its text is never the shorter one.
    let longest = inner.get_vocab(true).keys().map(String::len).max()?;
    Some(longest.max(1) * factor)
}

/// Whether a splitter is byte level and drops nothing.
fn keeps_all(splitter: &Value) -> bool {
    let text = splitter.to_string();
    text.contains("\"type\":\"ByteLevel\"")
        && !text.contains("\"Removed\"")
        && !text.contains("\"Whitespace")
        && !text.contains("\"CharDelimiterSplit\"")
}
