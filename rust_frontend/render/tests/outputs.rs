//! Tokens to text: stop strings, stop ids, ends; whatever the cut.
#![allow(clippy::unwrap_used)]

mod support;

use octavo_api::{FinishReason, StopReason};
use octavo_render::{Ended, Renderer};
use octavo_wire::frontend::Finish;
use proptest::prelude::*;
use serde_json::{Value, json};
use support::{EOS, completion, ids, model};

fn finish(reason: &str, stop_token: Option<i32>) -> Finish {
    Finish {
        reason: reason.to_owned(),
        stop_token,
        message: None,
    }
}

/// Runs an output in steps of these lengths, repeated. `apart` sends the finish in a step of its own.
fn run(
    renderer: &Renderer,
    fields: &Value,
    tokens: &[i32],
    end: &Finish,
    cuts: &[usize],
    apart: bool,
) -> (Vec<String>, Ended) {
    let prepared = completion(renderer, fields).unwrap();
    let mut output = renderer.output(&prepared.output);
    let mut texts = Vec::new();
    let mut rest = tokens;
    for cut in cuts.iter().cycle() {
        let (head, tail) = rest.split_at((*cut).min(rest.len()));
        rest = tail;
        let update = output.advance(head, (rest.is_empty() && !apart).then_some(end));
        texts.push(update.text);
        if let Some(ended) = update.end {
            assert_eq!(
                output.advance(&[65], Some(end)),
                octavo_render::Update::default(),
                "nothing comes after the end"
            );
            return (texts, ended);
        }
        if rest.is_empty() {
            break;
        }
    }
    let update = output.advance(&[], Some(end));
    texts.push(update.text);
    (texts, update.end.unwrap())
}

/// Runs it token by token.
fn singly(fields: &Value, tokens: &[i32], end: &Finish) -> (Vec<String>, Ended) {
    run(&model(&json!({})), fields, tokens, end, &[1], false)
}

#[test]
fn a_stop_string_over_tokens_is_cut_out_and_ends_the_output() {
    let (texts, ended) = singly(
        &json!({"stop": "END."}),
        &ids("abc END. more"),
        &finish("length", None),
    );
    assert_eq!(texts.concat(), "abc ");
    let wanted = Ended {
        reason: FinishReason::Stop,
        stop_reason: Some(StopReason::Text("END.".to_owned())),
        completion_tokens: 8,
        reasoning_tokens: None,
    };
    assert_eq!(ended, wanted);
}

#[test]
fn the_beginning_of_a_stop_string_is_not_shown() {
    let fields = json!({"stop": ["<|user|>", "\n\nQ:"]});
    let (texts, _) = singly(&fields, &ids("hello\n\nQ: next"), &finish("length", None));
    assert_eq!(texts.concat(), "hello");
    // What only looked like one comes out, at the latest at the end.
    let (texts, ended) = singly(&fields, &ids("hello\n\nA <|us"), &finish("length", None));
    assert_eq!(texts.concat(), "hello\n\nA <|us");
    assert_eq!(
        (ended.reason, ended.stop_reason),
        (FinishReason::Length, None)
    );
}

#[test]
fn an_end_token_counts_and_is_not_shown() {
    let tokens = [ids("Hi"), vec![EOS]].concat();
    let (texts, ended) = singly(&json!({}), &tokens, &finish("stop", Some(EOS)));
    assert_eq!(texts.concat(), "Hi");
    assert_eq!(
        ended,
        Ended {
            reason: FinishReason::Stop,
            stop_reason: None,
            completion_tokens: 3,
            reasoning_tokens: None,
        }
    );
}

#[test]
fn a_stop_id_of_the_request_is_named_and_its_text_not_shown() {
    let fields = json!({"stop_token_ids": [i32::from(b'!')]});
    let (texts, ended) = singly(&fields, &ids("Hi!"), &finish("stop", Some(i32::from(b'!'))));
    assert_eq!(texts.concat(), "Hi");
    assert_eq!(ended.stop_reason, Some(StopReason::Token(i32::from(b'!'))));
    // The same id within the output, where the engine went on, is text.
    let (texts, ended) = singly(&fields, &ids("Hi!?"), &finish("length", None));
    assert_eq!(texts.concat(), "Hi!?");
    assert_eq!(ended.completion_tokens, 4);
    let (texts, _) = singly(&fields, &ids("Hi!"), &finish("length", None));
    assert_eq!(texts.concat(), "Hi!");
}

#[test]
fn ends_of_the_engine_are_passed_on() {
    for (name, reason) in [
        ("abort", FinishReason::Abort),
        ("error", FinishReason::Error),
        ("length", FinishReason::Length),
    ] {
        assert_eq!(
            singly(&json!({}), &ids("a"), &finish(name, None)).1.reason,
            reason
        );
    }
    // A stop string in the very last token wins over the length.
    assert_eq!(
        singly(&json!({"stop": "a"}), &ids("a"), &finish("length", None))
            .1
            .reason,
        FinishReason::Stop
    );
}

#[test]
fn a_character_that_is_never_finished_comes_out_as_a_mark() {
    let (texts, _) = singly(
        &json!({}),
        &[i32::from(b'a'), 0xF0, 0x9F, 0x8C],
        &finish("length", None),
    );
    assert_eq!(texts, ["a", "", "", "\u{fffd}"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_gives_the_same_text_and_the_same_end(
        text in "[abEé\n]{0,24}",
        noise in prop::collection::vec((any::<prop::sample::Index>(), 0i32..264), 0..4),
        stop in prop::collection::vec("[abE\n]{1,3}", 0..3),
        stop_ids in prop::collection::vec(97i32..99, 0..2),
        cuts in prop::collection::vec(1usize..6, 1..5),
        apart in any::<bool>(),
        by_id in any::<bool>(),
    ) {
        thread_local! { static MODEL: Renderer = model(&json!({})); }
        let mut tokens = ids(&text);
        for (at, id) in noise {
            tokens.insert(at.index(tokens.len() + 1), id);
        }
        let end = match (by_id, tokens.last()) {
            (true, Some(last)) if stop_ids.contains(last) => finish("stop", Some(*last)),
            _ => finish("length", None),
        };
        let fields = json!({"stop": stop, "stop_token_ids": stop_ids});
        MODEL.with(|renderer| {
            let (whole, ended) = run(renderer, &fields, &tokens, &end, &[tokens.len().max(1)], false);
            let (pieces, ended_in_pieces) = run(renderer, &fields, &tokens, &end, &cuts, apart);
            assert_eq!(whole.concat(), pieces.concat());
            assert_eq!(ended, ended_in_pieces);
            for stop in &stop {
                assert!(!whole.concat().contains(stop.as_str()));
            }
        });
    }
}
