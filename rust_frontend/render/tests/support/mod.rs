//! A small model folder: one token for each byte, a few special ones, a template.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use octavo_api::{ApiError, Body, ChatRequest, CompletionRequest};
use octavo_render::{Limits, Prepared, Renderer};
use serde_json::{Map, Value, json};

/// Ids of the special tokens; those of bytes are the bytes.
pub const BOS: i32 = 256;
pub const EOS: i32 = 257;
pub const TURN: i32 = 258;

/// Room for 64 tokens; the logits are a little wider than the vocabulary.
pub const LIMITS: Limits = Limits {
    max_model_len: 64,
    vocab_size: 264,
};

pub const TEMPLATE: &str = "{{ bos_token }}{% for m in messages %}[{{ m.content }}]{% endfor %}";

/// The alphabet of byte-level tokenizers: the letter of each byte.
fn letters() -> Vec<String> {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut others = 0x100..;
    (0..=u8::MAX)
        .map(|byte| {
            if printable(byte) {
                char::from(byte)
            } else {
                char::from_u32(others.next().unwrap()).unwrap()
            }
        })
        .map(String::from)
        .collect()
}

/// The tokenizer.json of the standard folder.
pub fn tokenizer() -> Value {
    let vocab: Map<String, Value> = letters()
        .into_iter()
        .zip(0..)
        .map(|(letter, id)| (letter, json!(id)))
        .collect();
    let added = [(BOS, "<s>"), (EOS, "</s>"), (TURN, "<turn>")].map(|(id, content)| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})
    });
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "added_tokens": added,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": vocab, "merges": [], "byte_fallback": false, "ignore_merges": false},
    })
}

/// Writes a model folder and loads it. `files` replace or join the standard ones; null leaves one out.
pub fn model(files: &Value) -> Renderer {
    let mut all = json!({
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": {"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE},
        "config.json": {},
    });
    all.as_object_mut()
        .unwrap()
        .extend(files.as_object().unwrap().clone());
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in all
        .as_object()
        .unwrap()
        .iter()
        .filter(|(_, content)| !content.is_null())
    {
        std::fs::write(dir.path().join(name), serde_json::to_vec(content).unwrap()).unwrap();
    }
    Renderer::load(dir.path(), Some(1)).unwrap()
}

pub fn chat(renderer: &Renderer, fields: &Value) -> Result<Prepared, ApiError> {
    let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    let body = Body::parse(&serde_json::to_vec(&body).unwrap())?;
    renderer.chat(&ChatRequest::from_body(body)?, LIMITS)
}

pub fn completion(renderer: &Renderer, fields: &Value) -> Result<Prepared, ApiError> {
    let mut body = json!({"prompt": "hi"});
    body.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    let body = Body::parse(&serde_json::to_vec(&body).unwrap())?;
    renderer.completion(&CompletionRequest::from_body(body)?, LIMITS)
}

/// The ids of a text.
pub fn ids(text: &str) -> Vec<i32> {
    text.bytes().map(i32::from).collect()
}
