//! Tokenizers for tests: real vocabularies from the shared folder, small ones made here.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::io::Read;
use std::path::{Path, PathBuf};

use octavo_tokenizer::Tokenizer;
use serde_json::{Value, json};

/// The real vocabularies that lie beside the project.
pub const REAL: [&str; 7] = [
    "qwen2",
    "qwen35",
    "llama-bpe",
    "gpt-2",
    "mpt",
    "starcoder",
    "refact",
];

/// How many cases a property is tried with: `OCTAVO_PROPERTY_SCALE` times the usual number.
pub fn cases(usual: u32) -> u32 {
    let scale = std::env::var("OCTAVO_PROPERTY_SCALE").ok();
    usual * scale.map_or(1, |scale| scale.parse().unwrap())
}

/// The folder of shared material; `None`, with the reason printed, where it is absent.
pub fn shared(part: &str) -> Option<PathBuf> {
    let root = std::env::var_os("OCTAVO_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let path = root.join(part);
    if !path.is_dir() {
        println!("skipped: {} is absent; set OCTAVO_SHARED", path.display());
        return None;
    }
    Some(path)
}

/// A tokenizer of ours beside the same one of the `tokenizers` crate.
pub struct Pair {
    pub ours: Tokenizer,
    pub theirs: tokenizers::Tokenizer,
}

/// Loads a real vocabulary.
pub fn real(root: &Path, name: &str) -> Pair {
    let (json, config) = files(root, name);
    load(&json, &config)
}

/// tokenizer.json and tokenizer_config.json of a real vocabulary.
fn files(root: &Path, name: &str) -> (Vec<u8>, Vec<u8>) {
    let mut json = Vec::new();
    let file = std::fs::File::open(root.join(name).join("tokenizer.json.gz")).unwrap();
    flate2::read::GzDecoder::new(file)
        .read_to_end(&mut json)
        .unwrap();
    let config = std::fs::read(root.join(name).join("tokenizer_config.json")).unwrap();
    (json, config)
}

/// StarCoder's vocabulary without the bytes that few texts have and no other token is made of, as SmolLM2's is.
pub fn lacking(root: &Path) -> Pair {
    let (json, config) = files(root, "starcoder");
    let mut file: Value = serde_json::from_slice(&json).unwrap();
    // First bytes of characters of three planes, as byte-level tokens write them.
    let lacks = |token: &str| token.contains(['ñ', 'ò', 'ó']);
    let model = file["model"].as_object_mut().unwrap();
    model["vocab"]
        .as_object_mut()
        .unwrap()
        .retain(|token, _| !lacks(token));
    model["merges"]
        .as_array_mut()
        .unwrap()
        .retain(|merge| !lacks(&merge.to_string()));
    load(&serde_json::to_vec(&file).unwrap(), &config)
}

/// Loads tokenizer.json and tokenizer_config.json.
pub fn load(json: &[u8], config: &[u8]) -> Pair {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("tokenizer.json"), json).unwrap();
    std::fs::write(dir.path().join("tokenizer_config.json"), config).unwrap();
    Pair {
        ours: Tokenizer::load(dir.path()).unwrap(),
        theirs: tokenizers::Tokenizer::from_bytes(json).unwrap(),
    }
}

/// A tokenizer.json of whole-word pieces with this decoder; ids count from 0, "<s>" is special.
pub fn small(tokens: &[&str], decoder: Value) -> Value {
    let vocab: serde_json::Map<String, Value> = tokens
        .iter()
        .enumerate()
        .map(|(id, token)| ((*token).to_owned(), json!(id)))
        .collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": decoder,
        "added_tokens": [{"id": 0, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                          "normalized": false, "special": true}],
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<s>"},
    })
}

/// Decodes in pieces: `cuts` are the lengths, repeated.
pub fn in_pieces(tokenizer: &Tokenizer, ids: &[u32], cuts: &[usize]) -> Vec<String> {
    let mut decoder = tokenizer.decoder(&[]);
    let mut texts = Vec::new();
    let mut rest = ids;
    for cut in cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (head, tail) = rest.split_at((*cut).min(rest.len()));
        let mut text = String::new();
        decoder.push(head, &mut text);
        assert!(
            decoder.pending() <= 3,
            "{} bytes held back",
            decoder.pending()
        );
        texts.push(text);
        rest = tail;
    }
    let mut text = String::new();
    decoder.finish(&mut text);
    texts.push(text);
    texts
}
