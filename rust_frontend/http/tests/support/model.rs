//! A model folder whose tokens are bytes: id 65 is "A". 256 begins a turn, 257 ends it.

use serde_json::{Map, Value, json};
use tempfile::TempDir;

pub const TURN: i32 = 256;
pub const END: i32 = 257;
pub const VOCAB: u64 = 258;

const TEMPLATE: &str = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}\
    {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// Writes the folder.
pub fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let special = |id: i32, content: &str| {
        json!({
            "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true,
        })
    };
    let byte_level = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true,
    });
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [special(TURN, "<|im_start|>"), special(END, "<|im_end|>")],
        "normalizer": null,
        "pre_tokenizer": byte_level,
        "post_processor": null,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary(), "merges": [],
        },
    });
    let config =
        json!({"eos_token": "<|im_end|>", "chat_template": TEMPLATE, "model_max_length": 4096});
    let files = [
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", config),
        ("generation_config.json", json!({"eos_token_id": END})),
        (
            "config.json",
            json!({"eos_token_id": END, "vocab_size": VOCAB}),
        ),
    ];
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content.to_string()).unwrap();
    }
    folder
}

/// GPT-2's names of the bytes, each with the byte itself as its id.
fn vocabulary() -> Map<String, Value> {
    let mut vocabulary = Map::new();
    let mut next = 256;
    for byte in 0..=255_u32 {
        let printable = matches!(byte, 33..=126 | 161..=172 | 174..=255);
        let code = if printable {
            byte
        } else {
            next += 1;
            next - 1
        };
        vocabulary.insert(char::from_u32(code).unwrap().to_string(), json!(byte));
    }
    vocabulary.insert("<|im_start|>".to_owned(), json!(TURN));
    vocabulary.insert("<|im_end|>".to_owned(), json!(END));
    vocabulary
}

/// The tokens of a text.
pub fn tokens(text: &str) -> Vec<i32> {
    text.bytes().map(i32::from).collect()
}
