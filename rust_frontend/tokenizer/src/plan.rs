//! The decoder of a tokenizer.json, reduced to what octavo does with a token.

use serde_json::Value;

use crate::error::TokenizerError;

/// How tokens become text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Each character of a token stands for a byte.
    ByteLevel,
    /// Text tokens with replacements; tokens of the form `<0xE5>` are bytes.
    Chain(Chain),
    /// A character stands for a space; in the first token it stands for nothing if `drop_first`.
    Metaspace { space: char, drop_first: bool },
    /// Words and, behind a prefix, their further parts. With `clean` spaces before punctuation go.
    WordPiece { prefix: String, clean: bool },
    /// Tokens joined by spaces: there is no decoder.
    Words,
}

/// The sequence Replace*, `ByteFallback`?, Fuse, Strip?.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    /// Replacements within a token, in order.
    pub(crate) replace: Vec<(String, String)>,
    /// Whether there are byte tokens.
    pub(crate) byte_fallback: bool,
    /// Leading characters to drop from the whole text, and how many at most.
    pub(crate) strip: Option<(char, usize)>,
}

impl Plan {
    /// Reads the `decoder` of a tokenizer.json.
    ///
    /// # Errors
    /// A decoder, or an order of decoders, that octavo does not know.
    pub(crate) fn read(decoder: &Value) -> Result<Self, TokenizerError> {
        match kind(decoder) {
            "null" => Ok(Self::Words),
            "ByteLevel" => Ok(Self::ByteLevel),
            "Metaspace" => metaspace(decoder),
            "WordPiece" => Ok(word_piece(decoder)),
            "Sequence" => sequence(decoder),
            "Replace" | "ByteFallback" | "Fuse" => chain(std::slice::from_ref(decoder)),
            other => Err(TokenizerError::Decoder(other.to_owned())),
        }
    }
}

fn kind(decoder: &Value) -> &str {
    if decoder.is_null() {
        "null"
    } else {
        decoder
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or("without a type")
    }
}

fn metaspace(decoder: &Value) -> Result<Plan, TokenizerError> {
    let space = decoder
        .get("replacement")
        .and_then(Value::as_str)
        .and_then(|text| text.chars().next());
    let space = space
        .ok_or_else(|| TokenizerError::Decoder("Metaspace without a replacement".to_owned()))?;
    let never = decoder.get("prepend_scheme").and_then(Value::as_str) == Some("never");
    Ok(Plan::Metaspace {
        space,
        drop_first: !never,
    })
}

fn word_piece(decoder: &Value) -> Plan {
    let prefix = decoder.get("prefix").and_then(Value::as_str);
    Plan::WordPiece {
        prefix: prefix.unwrap_or_default().to_owned(),
        clean: decoder.get("cleanup") == Some(&Value::Bool(true)),
    }
}

fn sequence(decoder: &Value) -> Result<Plan, TokenizerError> {
    match decoder
        .get("decoders")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
    {
        Some([one]) if kind(one) != "Sequence" => Plan::read(one),
        Some(steps) => chain(steps),
        None => Err(TokenizerError::Decoder(
            "Sequence without decoders".to_owned(),
        )),
    }
}

fn chain(steps: &[Value]) -> Result<Plan, TokenizerError> {
    let mut chain = Chain::default();
    let mut fused = false;
    for step in steps {
        match kind(step) {
            "Replace" if !chain.byte_fallback && !fused => chain.replace.push(replace(step)?),
            "ByteFallback" if !fused => chain.byte_fallback = true,
            "Fuse" => fused = true,
            "Strip" if fused && chain.strip.is_none() => chain.strip = strip(step)?,
            _ => {
                let names: Vec<_> = steps.iter().map(kind).collect();
                return Err(TokenizerError::Decoder(format!(
                    "the sequence {}",
                    names.join(", ")
                )));
            }
        }
    }
    Ok(Plan::Chain(chain))
}

fn replace(step: &Value) -> Result<(String, String), TokenizerError> {
    let pattern = step
        .pointer("/pattern/String")
        .and_then(Value::as_str)
        .filter(|pattern| !pattern.is_empty());
    let content = step.get("content").and_then(Value::as_str);
    pattern
        .zip(content)
        .map(|(pattern, content)| (pattern.to_owned(), content.to_owned()))
        .ok_or_else(|| TokenizerError::Decoder("Replace by a regular expression".to_owned()))
}

fn strip(step: &Value) -> Result<Option<(char, usize)>, TokenizerError> {
    let count = |name| step.get(name).and_then(Value::as_u64).unwrap_or(0);
    if count("stop") > 0 {
        return Err(TokenizerError::Decoder(
            "Strip at the end of the text".to_owned(),
        ));
    }
    let content = step
        .get("content")
        .and_then(Value::as_str)
        .and_then(|text| text.chars().next());
    Ok(content.map(|content| {
        (
            content,
            usize::try_from(count("start")).unwrap_or(usize::MAX),
        )
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_the_llama_sequence() {
        let plan = Plan::read(&json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]}));
        let chain = Chain {
            replace: vec![("▁".to_owned(), " ".to_owned())],
            byte_fallback: true,
            strip: Some((' ', 1)),
        };
        assert_eq!(plan.unwrap(), Plan::Chain(chain));
    }

    #[test]
    fn refuses_others_by_name() {
        for (decoder, said) in [
            (json!({"type": "CTC"}), "CTC"),
            (
                json!({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "CTC"}]}),
                "the sequence Fuse, CTC",
            ),
            (
                json!({"type": "Sequence", "decoders": [{"type": "Strip", "content": " ", "start": 1, "stop": 0}, {"type": "Fuse"}]}),
                "Strip, Fuse",
            ),
            (
                json!({"type": "Replace", "pattern": {"Regex": "a"}, "content": ""}),
                "regular expression",
            ),
        ] {
            let error = Plan::read(&decoder).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
