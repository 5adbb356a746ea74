//! Conversations that grow: encodings from the cache equal encodings without it, and cost what is new.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::{Duration, Instant};

use proptest::prelude::*;
use support::{REAL, real, shared};

/// A turn of about this many words.
fn turn(number: usize, words: usize) -> String {
    let text: String = (0..words)
        .map(|word| {
            format!(
                "{} word{} é世",
                number * 7 + word,
                (number * 31 + word) % 97
            )
        })
        .collect::<Vec<_>>()
        .join(", ");
    format!("<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\nSo be it.<|im_end|>\n")
}

#[test]
fn a_growing_conversation_encodes_as_the_reference_does() {
    let Some(root) = shared("oracles/tokenizers") else {
        return;
    };
    for name in REAL {
        let pair = real(&root, name);
        let mut text = String::new();
        for number in 0..12 {
            text.push_str(&turn(number, 5 + number * 9));
            let theirs = pair.theirs.encode_fast(text.as_str(), false).unwrap();
            assert_eq!(
                pair.ours.encode(&text, false).unwrap(),
                theirs.get_ids(),
                "{name} {number}"
            );
            assert_eq!(
                pair.ours.encode(&text, false).unwrap(),
                theirs.get_ids(),
                "{name} {number} again"
            );
        }
    }
}

/// 70k tokens in 400 turns: the last turns cost as the first ones do, and not as the whole.
#[test]
fn a_growing_conversation_costs_what_is_new() {
    let Some(root) = shared("oracles/tokenizers") else {
        return;
    };
    let pair = real(&root, "qwen2");
    let mut text = String::new();
    let mut times = Vec::new();
    let mut tokens = 0;
    for number in 0..400 {
        text.push_str(&turn(number, 18));
        let begin = Instant::now();
        tokens = pair.ours.encode(&text, false).unwrap().len();
        times.push(begin.elapsed());
    }
    let begin = Instant::now();
    pair.theirs.encode_fast(text.as_str(), false).unwrap();
    let whole = begin.elapsed();
    let mean =
        |times: &[Duration]| times.iter().sum::<Duration>() / u32::try_from(times.len()).unwrap();
    let (first, last) = (mean(&times[..100]), mean(&times[300..]));
    println!(
        "{tokens} tokens; a turn of the first 100 takes {first:?}, of the last 100 {last:?}, the whole at once {whole:?}"
    );
    assert!(tokens > 60_000, "{tokens}");
    assert!(last * 10 < whole, "{last:?} {whole:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Special tokens in any order, cut off ones, and text between them.
    #[test]
    fn any_text_encodes_as_without_a_cache(
        parts in prop::collection::vec(prop_oneof![
            Just("<|im_start|>".to_owned()), Just("<|im_end|>".to_owned()), Just("<|endoftext|>".to_owned()),
            Just("<|im_".to_owned()), Just("  \n".to_owned()), "\\PC{0,12}", Just("[PAD151900]".to_owned()), Just(" word".repeat(90)),
        ], 0..60),
    ) {
        thread_local! { static PAIR: Option<support::Pair> = shared("oracles/tokenizers").map(|root| real(&root, "qwen2")); }
        let text = parts.concat();
        PAIR.with(|pair| if let Some(pair) = pair {
            let theirs = pair.theirs.encode_fast(text.as_str(), false).unwrap();
            for _ in 0..2 {
                assert_eq!(pair.ours.encode(&text, false).unwrap(), theirs.get_ids());
            }
        });
    }
}
