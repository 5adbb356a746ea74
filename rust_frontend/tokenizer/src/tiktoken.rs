//! tiktoken files: lines of a base64 byte sequence and its rank. The pattern that splits texts is in none of a model's
//! data files, so that it goes by the name of the file.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::pieces::Token;
use crate::ranked::RankedBpe;

/// A token with its id, its text, and whether clients do not see it.
type Special = (u32, String, bool);

/// A family of models that come with such a file.
struct Family {
    /// The file's name.
    file: &'static str,
    pattern: &'static str,
    /// Ids behind the vocabulary that are special; those without a name are `reserved` and their number.
    reserved: u32,
    name: fn(u32, u32) -> String,
    /// Names of the first special ids, where tokenizer_config.json has none.
    special: &'static [&'static str],
}

const KIMI: &str = concat!(
    r"[\p{Han}]+|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

const QWEN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const CL100K: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const O200K: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

const FAMILIES: [Family; 4] = [
    Family {
        file: "tiktoken.model",
        pattern: KIMI,
        reserved: 256,
        name: |id, _| format!("<|reserved_token_{id}|>"),
        special: &[],
    },
    Family {
        file: "qwen.tiktoken",
        pattern: QWEN,
        reserved: 208,
        name: |_, index| format!("<|extra_{}|>", index - 3),
        special: &["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    },
    Family {
        file: "o200k_base.tiktoken",
        pattern: O200K,
        reserved: 1090,
        name: |id, _| format!("<|reserved_{id}|>"),
        special: &[
            "<|startoftext|>",
            "<|endoftext|>",
            "<|reserved_200000|>",
            "<|reserved_200001|>",
            "<|return|>",
            "<|constrain|>",
            "<|reserved_200004|>",
            "<|channel|>",
            "<|start|>",
            "<|end|>",
            "<|message|>",
            "<|reserved_200009|>",
            "<|reserved_200010|>",
            "<|reserved_200011|>",
            "<|call|>",
        ],
    },
    Family {
        file: "tokenizer.model",
        pattern: CL100K,
        reserved: 256,
        name: |_, index| format!("<|reserved_special_token_{index}|>"),
        special: &[],
    },
];

/// What such a file and tokenizer_config.json hold.
pub(crate) struct Tiktoken {
    pub(crate) bpe: RankedBpe,
    /// All tokens by id.
    pub(crate) tokens: Vec<Option<Token>>,
}

/// The names of the files that are read, in the order in which they are looked for.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().map(|family| family.file)
}

/// Whether this is such a file: its first line is a base64 text and a number.
pub(crate) fn recognises(bytes: &[u8]) -> bool {
    let line = bytes
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    entry(line).is_some()
}

/// Reads a file by its name. Special tokens come from `added_tokens_decoder` of tokenizer_config.json.
///
/// # Errors
/// What is wrong with the file.
pub(crate) fn read(
    name: &str,
    bytes: &[u8],
    config: &Map<String, Value>,
    most: usize,
) -> Result<Tiktoken, String> {
    let family = FAMILIES.iter().find(|family| family.file == name);
    let family =
        family.ok_or_else(|| format!("no splitting pattern is known for a file called {name}"))?;
    let mut ranks = Vec::new();
    for (number, line) in bytes
        .split(|byte| *byte == b'\n')
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
    {
        let entry = entry(line)
            .ok_or_else(|| format!("line {} is no base64 text and number", number + 1))?;
        ranks.push(entry);
    }
    let first = ranks.iter().map(|(_, rank)| rank + 1).max().unwrap_or(0);
    if first as usize + family.reserved as usize > most {
        return Err(format!("a token has the rank {}", first - 1));
    }
    let special = special(family, first, config, most)?;
    let size = special
        .iter()
        .map(|(id, ..)| *id)
        .max()
        .map_or(first, |last| first.max(last + 1));
    let mut tokens: Vec<Option<Token>> = vec![None; size as usize];
    for (bytes, rank) in &ranks {
        tokens[*rank as usize] = Some(Token::bytes(bytes.clone()));
    }
    for (id, name, hidden) in &special {
        tokens[*id as usize] = Some(if *hidden {
            Token::special(name.clone())
        } else {
            Token::bytes(name.clone().into_bytes())
        });
    }
    let named = special
        .into_iter()
        .map(|(id, name, _)| (name, id))
        .collect();
    let bpe = RankedBpe::new(ranks, family.pattern, 0, named, true)?;
    Ok(Tiktoken { bpe, tokens })
}

/// Special tokens: those that the family reserves, and those that tokenizer_config.json names.
fn special(
    family: &Family,
    first: u32,
    config: &Map<String, Value>,
    most: usize,
) -> Result<Vec<Special>, String> {
    let mut special: Vec<Special> = (0..family.reserved)
        .map(|index| {
            let known = family
                .special
                .get(index as usize)
                .map(|name| (*name).to_owned());
            (
                first + index,
                known.unwrap_or_else(|| (family.name)(first + index, index)),
                true,
            )
        })
        .collect();
    for (id, name, hidden) in listed(config, most)? {
        match special.iter_mut().find(|(known, ..)| *known == id) {
            Some(place) => *place = (id, name, hidden),
            None => special.push((id, name, hidden)),
        }
    }
    Ok(special)
}

/// Reads one line.
fn entry(line: &[u8]) -> Option<(Vec<u8>, u32)> {
    let line = std::str::from_utf8(line).ok()?.trim_end();
    let (bytes, rank) = line.split_once(' ')?;
    let bytes = STANDARD
        .decode(bytes)
        .ok()
        .filter(|bytes| !bytes.is_empty())?;
    Some((bytes, rank.parse().ok().filter(|rank| *rank < u32::MAX)?))
}

/// Tokens that tokenizer_config.json lists, with their ids and whether clients do not see them.
fn listed(config: &Map<String, Value>, most: usize) -> Result<Vec<Special>, String> {
    let Some(Value::Object(added)) = config.get("added_tokens_decoder") else {
        return Ok(Vec::new());
    };
    let read = |(id, token): (&String, &Value)| {
        let id: u32 = id.parse().ok().filter(|id| (*id as usize) < most)?;
        let name = token
            .get("content")
            .and_then(Value::as_str)
            .filter(|name| !name.is_empty())?;
        Some((
            id,
            name.to_owned(),
            token.get("special") != Some(&Value::Bool(false)),
        ))
    };
    added
        .iter()
        .map(|entry| {
            read(entry).ok_or_else(|| {
                format!(
                    "added_tokens_decoder in tokenizer_config.json has a wrong entry: {}",
                    entry.0
                )
            })
        })
        .collect()
}
