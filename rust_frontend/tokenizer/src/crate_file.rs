//! A tokenizer.json for the `tokenizers` crate, which reads the rules of joining only when they are needed.
//!
//! The crate takes hundreds of milliseconds for the rules of a large vocabulary. Where octavo joins by itself, nothing but
//! token offsets needs them.

use std::sync::OnceLock;

use serde_json::value::RawValue;
use tokenizers::Tokenizer;

/// Reads a file with all that is in it.
///
/// # Errors
/// The crate's own words.
pub(crate) fn whole(bytes: &[u8]) -> Result<Tokenizer, String> {
    let mut inner = Tokenizer::from_bytes(bytes).map_err(|error| error.to_string())?;
    // What to cut is the server's business, and padding would add tokens to prompts.
    let cut = inner.with_truncation(None).map(|_| ());
    cut.map_err(|error| error.to_string())?;
    inner.with_padding(None);
    Ok(inner)
}

/// A file of byte pairs without its rules: whatever does not encode is as with them. `None` for other kinds of models.
pub(crate) fn without_rules(bytes: &[u8]) -> Option<Result<Tokenizer, String>> {
    #[derive(serde::Deserialize)]
    struct File<'a> {
        #[serde(borrow)]
        model: &'a RawValue,
    }
    #[derive(serde::Deserialize)]
    struct Model<'a> {
        #[serde(rename = "type")]
        kind: String,
        #[serde(borrow)]
        merges: &'a RawValue,
    }
    let file: File<'_> = serde_json::from_slice(bytes).ok()?;
    let model: Model<'_> = serde_json::from_str(file.model.get()).ok()?;
    let rules = model.merges.get();
    if model.kind != "BPE" || !rules.starts_with('[') {
        return None;
    }
    // The text of the rules is a part of the file's.
    let start = (rules.as_ptr() as usize).checked_sub(bytes.as_ptr() as usize)?;
    let (before, behind) = (bytes.get(..start)?, bytes.get(start + rules.len()..)?);
    Some(whole(&[before, b"[]", behind].concat()))
}

/// A file that is read when it is first needed.
pub(crate) struct Later {
    bytes: Vec<u8>,
    read: OnceLock<Result<Tokenizer, String>>,
}

impl Later {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            read: OnceLock::new(),
        }
    }

    /// # Errors
    /// The crate's own words.
    pub(crate) fn get(&self) -> Result<&Tokenizer, String> {
        let read = self.read.get_or_init(|| whole(&self.bytes));
        read.as_ref().map_err(Clone::clone)
    }
}

impl std::fmt::Debug for Later {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Later").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn file(kind: &str) -> Vec<u8> {
        let added = json!({"id": 4, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                           "normalized": false, "special": true});
        let file = json!({
            "version": "1.0", "truncation": {"max_length": 1, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
            "padding": null, "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
            "added_tokens": [added],
            "model": {"type": kind, "vocab": {"a": 0, "b": 1, "ab": 2, "[": 3}, "merges": [["a", "b"]], "unk_token": "a"},
        });
        file.to_string().into_bytes()
    }

    #[test]
    fn only_joining_needs_the_rules() {
        let bytes = file("BPE");
        let (light, later) = (without_rules(&bytes).unwrap().unwrap(), Later::new(bytes));
        let heavy = later.get().unwrap();
        let ids = |tokenizer: &Tokenizer| {
            tokenizer
                .encode_fast("ab<s>", false)
                .unwrap()
                .get_ids()
                .to_vec()
        };
        assert_eq!((ids(&light), ids(heavy)), (vec![0, 1, 4], vec![2, 4]));
        assert_eq!(light.get_vocab(true), heavy.get_vocab(true));
        assert_eq!(
            light.decode(&[2, 4], false).unwrap(),
            heavy.decode(&[2, 4], false).unwrap()
        );
        assert_eq!(
            light.get_added_tokens_decoder(),
            heavy.get_added_tokens_decoder()
        );
    }

    #[test]
    fn other_models_are_read_whole() {
        assert!(without_rules(&file("WordLevel")).is_none());
        assert!(without_rules(b"{}").is_none() && without_rules(b"").is_none());
    }
}
