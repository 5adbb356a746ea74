//! tekken and tiktoken files; word pieces.

#![allow(clippy::unwrap_used)]

mod support;

use std::fmt::Write as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use octavo_tokenizer::Tokenizer;
use proptest::prelude::*;
use serde_json::{Value, json};
use support::{in_pieces, load, real, shared, small};

/// All bytes, then these sequences, as (bytes, rank).
fn ranks(more: &[&str]) -> Vec<(Vec<u8>, usize)> {
    let bytes = (0..=u8::MAX).map(|byte| vec![byte]);
    let more = more.iter().map(|text| text.as_bytes().to_vec());
    bytes.chain(more).zip(0..).collect()
}

fn tiktoken(dir: &Path, name: &str, ranks: &[(Vec<u8>, usize)], config: &Value) -> Tokenizer {
    let mut lines = String::new();
    for (bytes, rank) in ranks {
        writeln!(lines, "{} {rank}", STANDARD.encode(bytes)).unwrap();
    }
    std::fs::write(dir.join(name), lines).unwrap();
    std::fs::write(dir.join("tokenizer_config.json"), config.to_string()).unwrap();
    Tokenizer::load(dir).unwrap()
}

/// The bytes of the alphabet of byte-level tokenizers.
fn bytes_of(token: &str) -> Option<Vec<u8>> {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut others = 0x100..;
    let letters: Vec<char> = (0..=u8::MAX)
        .map(|byte| {
            if printable(byte) {
                char::from(byte)
            } else {
                char::from_u32(others.next().unwrap()).unwrap()
            }
        })
        .collect();
    let byte = |letter| {
        letters
            .iter()
            .position(|known| *known == letter)
            .map(|byte| u8::try_from(byte).unwrap())
    };
    token.chars().map(byte).collect()
}

/// Llama 3's vocabulary was a tiktoken file once: it, and the same made of such a file again.
fn llama() -> Option<(tempfile::TempDir, Tokenizer, support::Pair)> {
    let pair = real(&shared("oracles/tokenizers")?, "llama-bpe");
    let mut ranks: Vec<(Vec<u8>, usize)> = pair
        .theirs
        .get_vocab(false)
        .into_iter()
        .filter(|(_, id)| *id < 128_000)
        .map(|(token, id)| (bytes_of(&token).unwrap(), id as usize))
        .collect();
    ranks.sort_by_key(|(_, id)| *id);
    let listed = |token: &tokenizers::AddedToken| json!({"content": token.content, "special": token.special});
    let added: serde_json::Map<String, Value> = pair
        .theirs
        .get_added_tokens_decoder()
        .iter()
        .map(|(id, token)| (id.to_string(), listed(token)))
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let config = json!({"added_tokens_decoder": added});
    let ours = tiktoken(dir.path(), "tokenizer.model", &ranks, &config);
    Some((dir, ours, pair))
}

/// What it encodes to must not change on the way back.
#[test]
fn ranks_encode_as_the_vocabulary_that_was_made_of_them() {
    let Some((_dir, ours, pair)) = llama() else {
        return;
    };
    assert_eq!(ours.vocab_size(), pair.ours.vocab_size());
    let texts = [
        "Hello, world! It's 12345 o'clock.\n\n  def f(x):\n\treturn x ** 2\r\n",
        "Grüße, 世界! 🌶️👩‍👩‍👧 देवनागरी ☃\u{200d}é\u{301} ",
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n<|eot_id|><|eot",
        "",
    ];
    for text in texts {
        let theirs = pair.theirs.encode_char_offsets(text, false).unwrap();
        assert_eq!(
            ours.encode(text, false).unwrap(),
            theirs.get_ids(),
            "{text}"
        );
        let encoding = ours.encode_with_offsets(text, false).unwrap();
        assert_eq!(encoding.ids, theirs.get_ids());
        assert_eq!(encoding.offsets, theirs.get_offsets(), "{text}");
        let decoded = pair.theirs.decode(theirs.get_ids(), true).unwrap();
        assert_eq!(ours.decode(theirs.get_ids()), decoded);
    }
    let long = texts.concat().repeat(40);
    let theirs = pair.theirs.encode(long.as_str(), false).unwrap();
    assert_eq!(ours.encode(&long, false).unwrap(), theirs.get_ids());
    let plain = ours.encode_ordinary("<|eot_id|>x").unwrap();
    assert_eq!(plain, pair.ours.encode_ordinary("<|eot_id|>x").unwrap());
    assert!(plain.len() > 3 && ours.decode(&plain) == "<|eot_id|>x");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ranks_encode_any_text_alike(text in "\\PC{0,20}[ \\n\\t\\r]{0,4}\\PC{0,20}[a-z0-9' ]{0,20}") {
        thread_local! { static LLAMA: Option<(tempfile::TempDir, Tokenizer, support::Pair)> = llama(); }
        LLAMA.with(|llama| if let Some((_dir, ours, pair)) = llama {
            let theirs = pair.theirs.encode(text.as_str(), false).unwrap();
            assert_eq!(ours.encode(&text, false).unwrap(), theirs.get_ids(), "{text}");
        });
    }
}

#[test]
fn kimi_files_have_reserved_tokens_behind_the_vocabulary() {
    let dir = tempfile::tempdir().unwrap();
    let config = json!({"added_tokens_decoder": {
        "258": {"content": "[BOS]", "special": true}, "260": {"content": "<think>", "special": false},
    }, "bos_token": "[BOS]"});
    let tokenizer = tiktoken(
        dir.path(),
        "tiktoken.model",
        &ranks(&["he", "中文"]),
        &config,
    );
    assert_eq!(tokenizer.vocab_size(), 258 + 256);
    let ids = tokenizer
        .encode("[BOS]he中文<think><|reserved_token_259|>", false)
        .unwrap();
    assert_eq!(ids, [258, 256, 257, 260, 259]);
    assert_eq!(tokenizer.decode(&ids), "he中文<think>");
    assert_eq!(tokenizer.token_to_id("<think>"), Some(260));
    assert_eq!(tokenizer.id_to_token(257).as_deref(), Some("中文"));
    assert_eq!(tokenizer.encode_ordinary("[BOS]").unwrap().len(), 5);
    let split = tokenizer.encode_with_offsets("aé[BOS]b", false).unwrap();
    assert_eq!(split.offsets, [(0, 1), (1, 2), (1, 2), (2, 7), (7, 8)]);
}

fn tekken(dir: &Path, change: impl FnOnce(&mut Value)) -> Result<Tokenizer, String> {
    let vocab: Vec<Value> = ranks(&["he", "hell"])
        .iter()
        .map(|(bytes, rank)| json!({"rank": rank, "token_bytes": STANDARD.encode(bytes), "token_str": null}))
        .collect();
    let mut file = json!({
        "config": {"pattern": r"\w+|\W+", "num_vocab_tokens": 258, "default_vocab_size": 257 + 30,
                   "default_num_special_tokens": 30, "version": "v3"},
        "vocab": vocab,
    });
    change(&mut file);
    std::fs::write(dir.join("tekken.json"), file.to_string()).unwrap();
    Tokenizer::load(dir).map_err(|error| error.to_string())
}

#[test]
fn tekken_files_have_special_tokens_before_the_vocabulary() {
    let dir = tempfile::tempdir().unwrap();
    let tokenizer = tekken(dir.path(), |_| ()).unwrap();
    assert_eq!(
        (tokenizer.vocab_size(), tokenizer.tekken_version()),
        (287, Some(3))
    );
    // The 258th sequence lies beyond the size that the file asks for.
    let ids = tokenizer.encode("hell", false).unwrap();
    assert_eq!(ids, [286, 138, 138]);
    assert_eq!(tokenizer.token_to_id("[INST]"), Some(3));
    assert_eq!(tokenizer.token_to_id("<SPECIAL_29>"), Some(29));
    assert_eq!(tokenizer.special().get("bos_token"), Some("<s>"));
    assert_eq!(
        tokenizer.encode("[INST]", false).unwrap().len(),
        6,
        "a special token in a text is text"
    );
    assert_eq!(tokenizer.decode(&[1, 286, 3, 138]), "hel");
    let all = tokenizer.decode_all(&[1, 286, 3, 138]).unwrap();
    assert_eq!(all, "<s>he[INST]l");
}

#[test]
fn tekken_files_that_are_wrong_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |change: fn(&mut Value)| tekken(dir.path(), change).unwrap_err();
    for (reason, said) in [
        (
            refused(|file| file["config"]["version"] = json!("tekken")),
            "version is \"tekken\"",
        ),
        (
            refused(|file| file["config"]["version"] = json!("v11")),
            "special_tokens is missing",
        ),
        (
            refused(|file| file["config"]["default_vocab_size"] = json!(400)),
            "vocab has 258 ranks below 370",
        ),
        (
            refused(|file| file["config"]["default_vocab_size"] = json!(4_000_000_000_u32)),
            "default_vocab_size",
        ),
        (
            refused(|file| file["config"]["pattern"] = json!("(")),
            "the pattern",
        ),
        (
            refused(|file| file["vocab"][0]["token_bytes"] = json!("?")),
            "token_bytes of rank 0",
        ),
        (
            refused(|file| {
                file["special_tokens"] =
                    json!([{"rank": 99, "token_str": "<x>", "is_control": true}])
            }),
            "the rank 99",
        ),
    ] {
        assert!(
            reason.contains(said) && reason.contains("tekken.json"),
            "{reason}"
        );
    }
}

#[test]
fn word_pieces_join_without_their_prefix() {
    let words = [
        "[CLS]", "hello", "##s", "world", ".", "do", "not", "'", "##t", "n't", "é", "##é", "?",
    ];
    for cleanup in [true, false] {
        let decoder = json!({"type": "WordPiece", "prefix": "##", "cleanup": cleanup});
        let pair = load(&serde_json::to_vec(&small(&words, decoder)).unwrap(), b"{}");
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
            cases: 200,
            failure_persistence: None,
            ..ProptestConfig::default()
        });
        let ids = prop::collection::vec(0_u32..14, 0..12);
        runner
            .run(
                &(ids, prop::collection::vec(1_usize..4, 1..4)),
                |(ids, cuts)| {
                    let whole = pair.theirs.decode(&ids, true).unwrap();
                    prop_assert_eq!(
                        in_pieces(&pair.ours, &ids, &cuts).concat(),
                        whole,
                        "{:?}",
                        ids
                    );
                    Ok(())
                },
            )
            .unwrap();
    }
}
