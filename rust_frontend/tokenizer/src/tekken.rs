//! tekken.json, the vocabulary of Mistral's models: byte sequences with ranks behind a block of special tokens.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::pieces::Token;
use crate::ranked::RankedBpe;

/// Special tokens of files that do not list them; versions up to 7.
const UNLISTED: [&str; 20] = [
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
];

#[derive(Deserialize)]
struct File {
    config: Config,
    vocab: Vec<Entry>,
    special_tokens: Option<Vec<Special>>,
}

#[derive(Deserialize)]
struct Config {
    pattern: String,
    default_vocab_size: u32,
    default_num_special_tokens: u32,
    version: String,
}

#[derive(Deserialize)]
struct Entry {
    rank: u32,
    token_bytes: String,
}

#[derive(Deserialize)]
struct Special {
    rank: u32,
    token_str: String,
}

/// What a tekken.json holds.
pub(crate) struct Tekken {
    pub(crate) bpe: RankedBpe,
    /// All tokens by id.
    pub(crate) tokens: Vec<Option<Token>>,
    /// The file's version: what Mistral's prompts look like depends on it.
    pub(crate) version: u32,
}

/// Reads a tekken.json. Special tokens that stand in a text are text: Mistral's prompts name theirs by id.
///
/// # Errors
/// What is wrong with the file.
pub(crate) fn read(bytes: &[u8], most: usize) -> Result<Tekken, String> {
    let file: File = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let version = version(&file.config.version)?;
    let first = file.config.default_num_special_tokens;
    let size = file.config.default_vocab_size;
    if size as usize > most || first > size {
        return Err(format!(
            "default_vocab_size is {size} and default_num_special_tokens {first}"
        ));
    }
    let mut tokens: Vec<Option<Token>> = vec![None; size as usize];
    let special = special(file.special_tokens, version, first)?;
    for (id, name) in &special {
        tokens[*id as usize] = Some(Token::special(name.clone()));
    }
    let special = special.into_iter().map(|(id, name)| (name, id)).collect();
    let mut ranks = Vec::with_capacity((size - first) as usize);
    for entry in file.vocab.iter().filter(|entry| entry.rank < size - first) {
        let bytes = STANDARD.decode(&entry.token_bytes);
        let bytes =
            bytes.map_err(|error| format!("token_bytes of rank {}: {error}", entry.rank))?;
        tokens[(first + entry.rank) as usize] = Some(Token::bytes(bytes.clone()));
        ranks.push((bytes, entry.rank));
    }
    if ranks.len() != (size - first) as usize {
        return Err(format!(
            "vocab has {} ranks below {}",
            ranks.len(),
            size - first
        ));
    }
    let bpe = RankedBpe::new(ranks, &file.config.pattern, first, special, false)?;
    Ok(Tekken {
        bpe,
        tokens,
        version,
    })
}

/// Reads "v3", "v7", "v13", ...
fn version(text: &str) -> Result<u32, String> {
    let number = text
        .strip_prefix('v')
        .and_then(|number| number.parse().ok());
    number.ok_or_else(|| format!("version is \"{text}\"; it must be of the form \"v7\""))
}

/// All special tokens: those listed, and fillers up to the number that the file reserves.
fn special(
    listed: Option<Vec<Special>>,
    version: u32,
    count: u32,
) -> Result<Vec<(u32, String)>, String> {
    let listed: Vec<(u32, String)> = match listed {
        Some(listed) => listed
            .into_iter()
            .map(|token| (token.rank, token.token_str))
            .collect(),
        None if version > 7 => {
            return Err(format!(
                "special_tokens is missing, and version {version} must list them"
            ));
        }
        None => (0..).zip(UNLISTED.map(str::to_owned)).collect(),
    };
    if let Some((rank, name)) = listed.iter().find(|(rank, _)| *rank >= count) {
        return Err(format!(
            "the special token {name} has the rank {rank}, and there are {count}"
        ));
    }
    let from = u32::try_from(listed.len()).unwrap_or(count);
    let fillers = (from..count).map(|id| (id, format!("<SPECIAL_{id}>")));
    Ok(listed.into_iter().chain(fillers).collect())
}
