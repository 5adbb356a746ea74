//! `tokenizer_config.json`: names of special tokens, and whether they are added around a text.

use serde_json::{Map, Value};

/// Special tokens by the name that chat templates use (`bos_token`, `eos_token`, ...), as text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpecialTokens {
    named: Vec<(String, String)>,
    additional: Vec<String>,
}

/// Fields of a tokenizer that name one special token each; other names end in `_token` too.
const PLAIN: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

impl SpecialTokens {
    /// Reads the names; `config` is tokenizer_config.json, `fallback` the older special_tokens_map.json.
    pub(crate) fn read(config: &Map<String, Value>, fallback: &Map<String, Value>) -> Self {
        let mut special = Self::default();
        for source in [config, fallback] {
            for name in PLAIN {
                special.add(name, source.get(name));
            }
            match source.get("extra_special_tokens") {
                Some(Value::Object(named)) => {
                    for (name, token) in named {
                        special.add(name, Some(token));
                    }
                }
                Some(Value::Array(tokens)) => special.more(tokens),
                _ => {}
            }
            if let Some(Value::Array(tokens)) = source.get("additional_special_tokens") {
                special.more(tokens);
            }
        }
        special
    }

    /// The text of a named token.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.named
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, text)| text.as_str())
    }

    /// All named tokens.
    pub fn named(&self) -> impl Iterator<Item = (&str, &str)> {
        self.named
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// Special tokens without a name of their own.
    pub fn additional(&self) -> &[String] {
        &self.additional
    }

    /// The first source that names a token holds.
    fn add(&mut self, name: &str, token: Option<&Value>) {
        if let Some(text) = token.and_then(text).filter(|_| self.get(name).is_none()) {
            self.named.push((name.to_owned(), text.to_owned()));
        }
    }

    fn more(&mut self, tokens: &[Value]) {
        for token in tokens.iter().filter_map(text) {
            if !self.additional.iter().any(|known| known == token) {
                self.additional.push(token.to_owned());
            }
        }
    }
}

/// A token is its text, or an object that holds it as `content`.
fn text(token: &Value) -> Option<&str> {
    match token {
        Value::String(text) => Some(text),
        Value::Object(fields) => fields.get("content").and_then(Value::as_str),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn reads_text_and_objects_and_skips_null() {
        let config = object(json!({
            "bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": null,
            "additional_special_tokens": ["<a>", {"content": "<b>"}],
            "extra_special_tokens": {"image_token": "<image>"},
        }));
        let fallback = object(
            json!({"bos_token": "<older>", "pad_token": "<pad>", "additional_special_tokens": ["<a>"]}),
        );
        let special = SpecialTokens::read(&config, &fallback);
        assert_eq!(special.get("bos_token"), Some("<s>"));
        assert_eq!(special.get("eos_token"), Some("</s>"));
        assert_eq!(special.get("pad_token"), Some("<pad>"));
        assert_eq!(special.get("image_token"), Some("<image>"));
        assert_eq!(special.get("unk_token"), None);
        assert_eq!(special.additional(), ["<a>", "<b>"]);
    }
}
