//! Decoders that drop leading spaces, or have byte tokens; loading.

#![allow(clippy::unwrap_used)]

mod support;

use octavo_tokenizer::{Tokenizer, TokenizerError};
use proptest::prelude::*;
use serde_json::json;
use support::{in_pieces, load, small};

const WORDS: [&str; 9] = ["<s>", "▁Hello", "▁world", "!", "▁a", "▁", "b", "▁Say", ":"];

fn metaspace(scheme: &str) -> support::Pair {
    let decoder =
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true});
    load(&serde_json::to_vec(&small(&WORDS, decoder)).unwrap(), b"{}")
}

fn llama() -> support::Pair {
    let mut tokens: Vec<String> = ["<s>", "▁Hello", "▁", "b", "▁▁▁"]
        .map(str::to_owned)
        .to_vec();
    tokens.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let decoder = json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]});
    load(
        &serde_json::to_vec(&small(&tokens, decoder)).unwrap(),
        b"{}",
    )
}

/// The id of a byte token of [`llama`].
fn byte(byte: u8) -> u32 {
    5 + u32::from(byte)
}

/// Of the shared bank of faults.
#[test]
fn dt04_a_leading_space_is_dropped_only_where_the_text_begins() {
    let pair = metaspace("always");
    let output = [1, 2, 3, 4, 5, 5, 6];
    assert_eq!(
        in_pieces(&pair.ours, &output, &[1]).concat(),
        "Hello world! a  b"
    );
    assert_eq!(
        pair.theirs.decode(&output, true).unwrap(),
        "Hello world! a  b"
    );
    for (prompt, wanted) in [
        (&[7, 8][..], " Hello world! a  b"),
        (&[0], "Hello world! a  b"),
        (&[0, 7, 0], " Hello world! a  b"),
    ] {
        let mut decoder = pair.ours.decoder(&pair.ours.context(prompt));
        let mut text = String::new();
        for id in output {
            decoder.push(&[id], &mut text);
        }
        decoder.finish(&mut text);
        assert_eq!(text, wanted, "{prompt:?}");
    }
}

#[test]
fn byte_runs_become_characters_as_they_complete() {
    let pair = llama();
    let ids: Vec<u32> = [1]
        .into_iter()
        .chain("é🌶".bytes().map(byte))
        .chain([3])
        .collect();
    assert_eq!(
        in_pieces(&pair.ours, &ids, &[1]),
        ["Hello", "", "é", "", "", "", "🌶", "b", ""]
    );
    assert_eq!(
        pair.ours.decode(&ids),
        pair.theirs.decode(&ids, true).unwrap()
    );
    // Wrong as a whole: the reference gives one mark a byte, and so do we for the bytes that are no character.
    let broken = [byte(0xE2), byte(0x82), 3];
    assert_eq!(pair.ours.decode(&broken), "\u{fffd}\u{fffd}b");
    assert_eq!(
        pair.theirs.decode(&broken, true).unwrap(),
        "\u{fffd}\u{fffd}b"
    );
    // The one stated difference: the complete character in front is kept.
    let mixed = [byte(0xC3), byte(0xA9), byte(0xFF)];
    assert_eq!(pair.ours.decode(&mixed), "é\u{fffd}");
    assert_eq!(
        pair.theirs.decode(&mixed, true).unwrap(),
        "\u{fffd}\u{fffd}\u{fffd}"
    );
}

#[test]
fn add_bos_token_adds_it_once_and_never_to_a_chat() {
    let json = serde_json::to_vec(&small(&WORDS, json!(null))).unwrap();
    let pair = load(&json, br#"{"add_bos_token": true, "bos_token": "<s>"}"#);
    assert_eq!(pair.ours.encode("▁Hello", true).unwrap(), [0, 1]);
    assert_eq!(pair.ours.encode("▁Hello", false).unwrap(), [1]);
    assert_eq!(pair.ours.encode("<s>▁Hello", true).unwrap(), [0, 1]);
    for (text, special, offsets) in [
        ("▁Hello", true, &[(0, 0), (0, 6)][..]),
        ("<s>▁Hello", true, &[(0, 3), (3, 9)]),
        ("▁Hello", false, &[(0, 6)]),
    ] {
        let encoding = pair.ours.encode_with_offsets(text, special).unwrap();
        assert_eq!(encoding.ids, pair.ours.encode(text, special).unwrap());
        assert_eq!(encoding.offsets, offsets, "{text}");
    }
}

#[test]
fn files_that_do_not_work_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let missing = Tokenizer::load(dir.path()).unwrap_err();
    assert!(matches!(&missing, TokenizerError::Missing(path) if path == dir.path()));
    assert!(missing.to_string().contains("save_pretrained"));
    std::fs::write(dir.path().join("tokenizer.json"), b"{\"version\": ").unwrap();
    assert!(matches!(
        Tokenizer::load(dir.path()).unwrap_err(),
        TokenizerError::Damaged(..)
    ));
    let json = serde_json::to_vec(&small(
        &WORDS,
        json!({"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": true}),
    ))
    .unwrap();
    std::fs::write(dir.path().join("tokenizer.json"), json).unwrap();
    assert!(
        Tokenizer::load(dir.path())
            .unwrap_err()
            .to_string()
            .contains("CTC")
    );
    let json = serde_json::to_vec(&small(&WORDS, json!(null))).unwrap();
    std::fs::write(dir.path().join("tokenizer.json"), json).unwrap();
    std::fs::write(dir.path().join("tokenizer_config.json"), b"[]").unwrap();
    let damaged = Tokenizer::load(dir.path()).unwrap_err().to_string();
    assert!(damaged.contains("tokenizer_config.json"), "{damaged}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn spaces_and_schemes_equal_the_reference(ids in prop::collection::vec(0u32..12, 0..12), cuts in prop::collection::vec(1usize..4, 1..4)) {
        thread_local! {
            static PAIRS: Vec<support::Pair> = vec![
                metaspace("always"), metaspace("first"), metaspace("never"),
                load(&serde_json::to_vec(&small(&WORDS, json!(null))).unwrap(), b"{}"),
            ];
        }
        PAIRS.with(|pairs| for pair in pairs {
            let whole = pair.theirs.decode(&ids, true).unwrap();
            assert_eq!(in_pieces(&pair.ours, &ids, &cuts).concat(), whole, "{ids:?}");
        });
    }

    #[test]
    fn byte_fallback_equals_the_reference_where_runs_are_whole(
        parts in prop::collection::vec(prop_oneof![
            Just(vec![0]), Just(vec![1]), Just(vec![2]), Just(vec![3]), Just(vec![4]),
            any::<char>().prop_map(|letter| letter.to_string().bytes().map(byte).collect::<Vec<u32>>()),
        ], 0..10),
        cuts in prop::collection::vec(1usize..4, 1..4),
    ) {
        thread_local! { static PAIR: support::Pair = llama(); }
        let ids = parts.concat();
        PAIR.with(|pair| {
            let whole = pair.theirs.decode(&ids, true).unwrap();
            assert_eq!(in_pieces(&pair.ours, &ids, &cuts).concat(), whole, "{ids:?}");
        });
    }
}
