//! A model folder whose tokens are bytes: id 65 is "A". 256 begins a turn, 257 ends it. Markers of a few formats follow.

use serde_json::{Map, Value, json};
use tempfile::TempDir;

pub const TURN: i32 = 256;
pub const END: i32 = 257;
/// 是, one token that is never made of text: nothing merges.
pub const WORD: i32 = 258;
pub const VOCAB: u64 = 268;

/// Tokens that mark thoughts and calls, and whether they are special; the first is 259.
const MARKERS: [(&str, bool); 9] = [
    ("<think>", false),
    ("</think>", false),
    ("<tool_call>", false),
    ("</tool_call>", false),
    ("<|tool_calls_section_begin|>", true),
    ("<|tool_calls_section_end|>", true),
    ("<|tool_call_begin|>", true),
    ("<|tool_call_argument_begin|>", true),
    ("<|tool_call_end|>", true),
];

/// `open_think` opens thoughts in the prompt.
const TEMPLATE: &str = "{% if tools %}{{ tools | tojson }}\\n{% endif %}\
    {% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + (m['content'] or '') }}\
    {% for call in m['tool_calls'] %}{{ call['function']['name'] + '(' }}\
    {% for key in call['function']['arguments'] %}{{ key }}{% endfor %}{{ ')' }}{% endfor %}{{ '<|im_end|>\\n' }}\
    {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}\
    {% if open_think %}{{ '<think>\\n' }}{% endif %}{% endif %}";

/// Writes the folder.
pub fn folder() -> TempDir {
    folder_with(TEMPLATE)
}

/// Writes the folder with a template of the test's choice.
pub fn folder_with(template: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let added = |id: i32, content: &str, special: bool| {
        json!({
            "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": special,
        })
    };
    let mut tokens = vec![
        added(TURN, "<|im_start|>", true),
        added(END, "<|im_end|>", true),
    ];
    for (id, (content, special)) in (WORD + 1..).zip(MARKERS) {
        tokens.push(added(id, content, special));
    }
    let byte_level = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true,
    });
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": tokens,
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
    let config = json!({"eos_token": "<|im_end|>", "bos_token": "<|im_start|>", "chat_template": template, "model_max_length": 4096});
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
    vocabulary.insert("æĺ¯".to_owned(), json!(WORD));
    vocabulary
}

/// The tokens of a text in which markers are one token each.
pub fn marked(text: &str) -> Vec<i32> {
    let mut ids = Vec::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let marker = (WORD + 1..)
            .zip(MARKERS)
            .find(|(_, (content, _))| rest.starts_with(content));
        let length = match marker {
            Some((id, (content, _))) => {
                ids.push(id);
                content.len()
            }
            None => {
                ids.extend(tokens(&rest[..next.len_utf8()]));
                next.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    ids
}

/// The tokens of a text, each a byte.
pub fn tokens(text: &str) -> Vec<i32> {
    text.bytes().map(i32::from).collect()
}
