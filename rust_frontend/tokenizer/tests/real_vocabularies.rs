//! Decoding and encoding equal the `tokenizers` crate over real vocabularies.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use support::{Pair, REAL, cases, in_pieces, lacking, real, shared};

/// All vocabularies, loaded once; none where they are absent.
fn vocabularies() -> &'static [(&'static str, Pair)] {
    static LOADED: LazyLock<Vec<(&str, Pair)>> = LazyLock::new(|| {
        let Some(root) = shared("oracles/tokenizers") else {
            return Vec::new();
        };
        let all = REAL.iter().map(|name| (*name, real(&root, name)));
        all.chain([("lacking", lacking(&root))]).collect()
    });
    &LOADED
}

/// Ids that are likely to leave characters unfinished: what odd text encodes to, shuffled with ids at random.
fn ids(vocab: u32, odd: Vec<u32>) -> impl Strategy<Value = Vec<u32>> {
    let near = proptest::sample::select(odd);
    prop::collection::vec(
        prop_oneof![3 => near, 2 => 0..vocab, 1 => 0..vocab + 50],
        0..40,
    )
}

/// Any text: mostly characters that print, with white space between them, or any characters at all.
fn text() -> impl Strategy<Value = String> {
    let marks = proptest::sample::select(vec![
        "<|im_end|>",
        "<|endoftext|>",
        "'s",
        "é",
        "e\u{301}",
        "a\u{40000}b",
    ]);
    let printing = ("\\PC{0,20}[ \\n\\t]{0,3}", marks, "\\PC{0,20}");
    prop_oneof![
        2 => printing.prop_map(|(head, mark, tail)| format!("{head}{mark}{tail}")),
        1 => prop::collection::vec(any::<char>(), 0..30).prop_map(String::from_iter),
    ]
}

#[test]
fn pieces_join_to_the_whole_decode() {
    for (name, pair) in vocabularies() {
        let odd = pair
            .ours
            .encode("🌶️👩‍👩‍👧‍👦 देवनागरी \u{fffd}𝔘𝔫𝔦 ☃ 中文字 �\u{200d}é\u{301}", false)
            .unwrap();
        let vocab = u32::try_from(pair.ours.vocab_size()).unwrap();
        let cuts = prop::collection::vec(1usize..6, 1..5);
        let mut runner = TestRunner::new(Config {
            cases: cases(400),
            failure_persistence: None,
            ..Config::default()
        });
        runner
            .run(&(ids(vocab, odd), cuts), |(ids, cuts)| {
                let whole = pair.theirs.decode(&ids, true).unwrap();
                prop_assert_eq!(
                    in_pieces(&pair.ours, &ids, &cuts).concat(),
                    whole.as_str(),
                    "{} {:?}",
                    name,
                    &ids
                );
                prop_assert_eq!(in_pieces(&pair.ours, &ids, &[1]).concat(), whole.as_str());
                prop_assert_eq!(pair.ours.decode(&ids), whole);
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn every_id_decodes_as_in_the_reference() {
    for (name, pair) in vocabularies() {
        for id in 0..u32::try_from(pair.ours.vocab_size()).unwrap() + 10 {
            assert_eq!(
                pair.ours.decode(&[id]),
                pair.theirs.decode(&[id], true).unwrap(),
                "{name} {id}"
            );
        }
    }
}

#[test]
fn encoding_equals_the_reference_and_comes_back() {
    for (_, pair) in vocabularies() {
        let mut runner = TestRunner::new(Config {
            cases: cases(100),
            failure_persistence: None,
            ..Config::default()
        });
        runner
            .run(&text(), |text| {
                let ids = pair.ours.encode(&text, false).unwrap();
                let theirs = pair.theirs.encode(text.as_str(), false).unwrap();
                prop_assert_eq!(&ids, theirs.get_ids());
                prop_assert_eq!(
                    pair.ours.decode(&ids),
                    pair.theirs.decode(&ids, true).unwrap()
                );
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn offsets_and_batches_equal_the_reference() {
    for (name, pair) in vocabularies() {
        let texts: Vec<String> = (0..40)
            .map(|number| {
                format!("{number} Grüße, 世界 🌶️! <|im_end|>\n  x = {number};").repeat(60)
            })
            .collect();
        let batch = pair.ours.encode_batch(&texts, false).unwrap();
        for (text, ids) in texts.iter().zip(&batch) {
            assert_eq!(*ids, pair.ours.encode(text, false).unwrap(), "{name}");
        }
        let theirs = pair
            .theirs
            .encode_char_offsets(texts[7].as_str(), false)
            .unwrap();
        let ours = pair.ours.encode_with_offsets(&texts[7], false).unwrap();
        assert_eq!(ours.ids, theirs.get_ids(), "{name}");
        assert_eq!(ours.offsets, theirs.get_offsets(), "{name}");
    }
}

/// The prompt ends inside a character; its last byte is the first that the model writes.
#[test]
fn a_character_that_the_prompt_began_belongs_to_the_output() {
    let Some((_, pair)) = vocabularies().iter().find(|(name, _)| *name == "gpt-2") else {
        return;
    };
    let all = pair.ours.encode("Hello world 🌶", false).unwrap();
    let (last, prompt) = all.split_last().unwrap();
    let mut decoder = pair.ours.decoder(&pair.ours.context(prompt));
    let mut text = String::new();
    decoder.push(&[*last], &mut text);
    decoder.push(&pair.ours.encode("!", false).unwrap(), &mut text);
    decoder.finish(&mut text);
    assert_eq!(text, "🌶!");
}

#[test]
fn unfinished_bytes_come_out_at_the_end_or_when_they_are_certain() {
    let Some((_, pair)) = vocabularies().iter().find(|(name, _)| *name == "gpt-2") else {
        return;
    };
    // GPT-2 numbers its bytes: printable ones first, then the rest in order.
    let printable: Vec<u8> = (b'!'..=b'~')
        .chain(0xA1..=0xAC)
        .chain(0xAE..=0xFF)
        .collect();
    let rest = (0..=255).filter(|byte| !printable.contains(byte));
    let order: Vec<u8> = printable.iter().copied().chain(rest).collect();
    let byte = |byte: u8| (0..256).find(|id| order[*id as usize] == byte).unwrap();
    let a = pair.ours.encode("a", false).unwrap();
    let pepper: Vec<u32> = "🌶".bytes().take(3).map(byte).collect();
    assert_eq!(
        in_pieces(&pair.ours, &[a, pepper].concat(), &[1]),
        ["a", "", "", "", "\u{fffd}"]
    );
    let x = pair.ours.encode(" x", false).unwrap();
    let broken: Vec<u32> = [0xE2, 0x82].map(byte).to_vec();
    assert_eq!(
        in_pieces(&pair.ours, &[broken, x].concat(), &[1]),
        ["", "", "\u{fffd} x", ""]
    );
}

#[test]
fn a_text_has_no_fewer_tokens_than_is_said_without_encoding_it() {
    for (name, pair) in vocabularies() {
        for text in [
            " ".repeat(5000),
            "\n".repeat(3000),
            "=".repeat(4000),
            "e\u{301}가".repeat(800),
            "\u{c0000}".repeat(3000),
            "the end ".repeat(500),
        ] {
            let tokens = pair.ours.encode(&text, false).unwrap().len();
            let least = pair.ours.least_tokens(&text);
            assert!(least <= tokens, "{name}: {least} of {tokens}");
            assert!(least > 0, "{name}: nothing is said of {} bytes", text.len());
        }
    }
}
