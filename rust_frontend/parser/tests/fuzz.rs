//! A fuzz driver beside the properties: texts of every format, broken at random, must never panic, lose order, depend on
//! their cut, or cost more than a multiple of their length.
//!
//! `cargo test` runs a fixed number of inputs from a fixed seed, or as many as fit into a few seconds. A longer search:
//! `OCTAVO_FUZZ_SECONDS=600 OCTAVO_FUZZ_SEED=7 cargo test --release -p octavo-parser --test fuzz -- --nocapture`.
//! A failure prints its seed; `OCTAVO_FUZZ_SEED` with it repeats the input at once.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Choice, machine, registry};
use octavo_grammar::{Format, RenderedCall, RenderedMessage};
use octavo_parser::{Event, Finish, Machine, Message, Options, Parser, Start, Tools};
use serde_json::{Value, json};

/// Without `OCTAVO_FUZZ_SECONDS`: so many inputs, or as many as fit.
const INPUTS: u64 = 3_000;
const SECONDS: u64 = 6;

/// Searches and comparisons for each byte, and for each input: far below what anything quadratic would need.
const WORK_A_BYTE: u64 = 120;
const WORK: u64 = 4_000;

/// Steele, Lea, Flood: SplitMix64 (2014).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % count.max(1) as u64).unwrap()
    }

    fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

const VALUES: [&str; 10] = [
    "",
    "x",
    "30",
    "null",
    "a\nb",
    "\"quoted\\\"",
    "Köln 字 🙂",
    "</parameter>",
    "{\"a\": [1, {}]}",
    "'; drop",
];

fn tools() -> Vec<Value> {
    let properties = json!({
        "text": {"type": "string"}, "count": {"type": "integer"}, "list": {"type": "array", "items": {"type": "number"}},
        "any": {"anyOf": [{"type": "null"}, {"type": "string"}]}, "object": {"type": "object"},
    });
    let parameters = json!({"type": "object", "properties": properties});
    vec![
        json!({"type": "function", "function": {"name": "save", "parameters": parameters}}),
        json!({"type": "function", "function": {"name": "get_time"}}),
    ]
}

fn message(dice: &mut Dice) -> RenderedMessage {
    let calls = (0..dice.below(4)).map(|_| {
        let mut arguments = serde_json::Map::new();
        for key in ["text", "count", "list", "any", "object", "other"] {
            if dice.chance(2) {
                let value = match dice.below(4) {
                    0 => json!(dice.below(100)),
                    1 => json!([1, 2.5]),
                    2 => json!(null),
                    _ => json!(dice.pick(&VALUES)),
                };
                arguments.insert(key.to_owned(), value);
            }
        }
        RenderedCall {
            name: (*dice.pick(&["save", "get_time", "nobody"])).to_owned(),
            arguments,
        }
    });
    let calls = calls.collect();
    RenderedMessage {
        reasoning: (*dice.pick(&["", "hm", "I think <so>.\n"])).to_owned(),
        content: (*dice.pick(&["", "Well.", "{braces} [1] <"])).to_owned(),
        calls,
    }
}

/// All texts that mark something in a machine.
fn markers(machine: &Machine) -> Vec<String> {
    let edges = machine.grammar().nodes.iter().flat_map(|node| &node.edges);
    edges.map(|edge| edge.text.clone()).collect()
}

/// Breaks a text in one place.
fn mutate(dice: &mut Dice, text: &str, markers: &[String]) -> String {
    let letters: Vec<char> = text.chars().collect();
    let at = dice.below(letters.len() + 1);
    let end = (at + 1 + dice.below(12)).min(letters.len()).max(at);
    let (head, part, tail) = (&letters[..at], &letters[at..end], &letters[end..]);
    let (marker, value) = (dice.below(markers.len()), *dice.pick(&VALUES));
    let middle: String = match dice.below(6) {
        0 => String::new(),
        1 => part.iter().chain(part).collect(),
        2 if !markers.is_empty() => part.iter().collect::<String>() + &markers[marker],
        3 if !markers.is_empty() => {
            let marker = &markers[marker];
            let cut = dice.below(marker.chars().count() + 1);
            marker
                .chars()
                .take(cut)
                .chain(part.iter().copied())
                .collect()
        }
        4 => part.iter().rev().collect(),
        _ => part.iter().collect::<String>() + value,
    };
    head.iter().collect::<String>() + &middle + &tail.iter().collect::<String>()
}

/// One way to run a text: in pieces, whole markers as special tokens where `special`.
fn run(
    machine: &Arc<Machine>,
    options: &Options,
    pieces: &[(String, bool)],
    finish: Finish,
) -> (Vec<Event>, u64) {
    let mut parser = Parser::new(machine, options.clone());
    let mut events = Vec::new();
    for (piece, special) in pieces {
        if *special {
            parser.push_special(piece);
        } else {
            parser.push_text(piece);
        }
        parser.end_token();
        events.extend(parser.poll());
    }
    events.extend(parser.finish(finish));
    assert_eq!(parser.held(), 0, "something is held back at the end");
    assert!(parser.feed("more").is_empty() && parser.finish(finish).is_empty());
    (events, parser.work())
}

fn cut(dice: &mut Dice, text: &str) -> Vec<(String, bool)> {
    let letters: Vec<char> = text.chars().collect();
    let size = 1 + dice.below(9);
    let mut rest = letters.as_slice();
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let count = (1 + dice.below(size)).min(rest.len());
        pieces.push((rest[..count].iter().collect(), false));
        rest = &rest[count..];
    }
    pieces
}

/// What must hold of any events.
fn check(events: &[Event], text: &str) {
    let (mut opened, mut current, mut said) = (0, None, 0);
    for (place, event) in events.iter().enumerate() {
        match event {
            Event::CallOpen { index, id, .. } => {
                assert_eq!(*index, opened, "indexes have gaps");
                assert_eq!(current, None, "a call begins within another");
                assert!(!id.is_empty(), "a call without an id");
                (opened, current) = (opened + 1, Some(*index));
            }
            Event::ArgsDelta { index, json } => {
                assert!(current == Some(*index) && !json.is_empty());
            }
            Event::CallClose { index } => assert_eq!(current.take(), Some(*index)),
            Event::ContentDelta { text } => {
                assert!(!text.is_empty());
                said += text.len();
            }
            Event::ReasoningDelta { text, .. } => said += text.len(),
            Event::Malformed { raw, .. } => said += raw.len(),
            Event::End { .. } => assert_eq!(place + 1, events.len(), "something follows the end"),
        }
    }
    assert!(matches!(events.last(), Some(Event::End { .. })) && current.is_none());
    assert!(said <= text.len() + 64, "more is said than was read");
}

/// A text of a format, broken in a few places; now and then with a marker many times in front.
fn text_of(dice: &mut Dice, format: &Format, markers: &[String]) -> String {
    let mut text = match &format.render {
        Some(render) => render.write(&message(dice)),
        None => (*dice.pick(&VALUES)).repeat(3),
    };
    for _ in 0..dice.below(5) {
        text = mutate(dice, &text, markers);
    }
    if dice.chance(20) && !markers.is_empty() {
        let many = 1 + dice.below(300);
        text = dice.pick(markers).repeat(many) + &text;
    }
    text
}

/// What a request may say.
fn options(dice: &mut Dice, markers: &[String]) -> Options {
    let tail = if dice.chance(3) || markers.is_empty() {
        String::new()
    } else {
        dice.pick(markers).clone()
    };
    let starts = [
        Start::Default,
        Start::Content,
        Start::Reasoning,
        Start::After(tail),
    ];
    Options {
        tools: if dice.chance(3) {
            Tools::default()
        } else {
            Tools::from_json(&tools())
        },
        start: dice.pick(&starts).clone(),
        parallel: !dice.chance(4),
        seed: dice.next(),
        skip_special: !dice.chance(4),
    }
}

/// One input: everything about it follows from the seed.
fn one(formats: &[(Format, Vec<Arc<Machine>>)], seed: u64) {
    let mut dice = Dice(seed);
    let (format, machines) = dice.pick(formats);
    let machine = dice.pick(machines);
    let markers = markers(machine);
    let text = text_of(&mut dice, format, &markers);
    let options = options(&mut dice, &markers);
    let finish = *dice.pick(&[Finish::Stop, Finish::Length, Finish::Abort]);
    let (whole, work) = run(machine, &options, &[(text.clone(), false)], finish);
    check(&whole, &text);
    let most = WORK + WORK_A_BYTE * text.len() as u64;
    assert!(work <= most, "work of {work} for {} bytes", text.len());
    let folded: Message = whole.iter().collect();
    for _ in 0..3 {
        let (events, _) = run(machine, &options, &cut(&mut dice, &text), finish);
        check(&events, &text);
        let mut again: Message = events.iter().collect();
        again.reasoning_tokens = folded.reasoning_tokens;
        assert_eq!(
            again, folded,
            "{} depends on the cut: {text:?}",
            format.name
        );
    }
    // Special tokens anywhere: nothing to compare with, but order and end hold.
    let mut pieces = cut(&mut dice, &text);
    for _ in 0..dice.below(6) {
        let at = dice.below(pieces.len() + 1);
        if let Some(marker) = markers.get(dice.below(markers.len())) {
            pieces.insert(at, (marker.clone(), true));
        }
    }
    let all: String = pieces.iter().map(|(piece, _)| piece.as_str()).collect();
    check(&run(machine, &options, &pieces, finish).0, &all);
}

/// Every format with the machines that requests get: calls read, not wanted, thinking off.
fn formats() -> Vec<(Format, Vec<Arc<Machine>>)> {
    let registry = registry();
    let machines = |format: &Format| {
        let of = |none: bool, off: bool| {
            let choice = Choice {
                tool: format.tool.first().map(String::as_str),
                reasoning: format.reasoning.first().map(String::as_str),
                none,
                off,
            };
            machine(&registry, choice)
        };
        vec![of(false, false), of(false, true), of(true, false)]
    };
    let formats = registry.formats().iter();
    formats
        .map(|format| (format.clone(), machines(format)))
        .collect()
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn broken_texts_of_all_formats() {
    let formats = formats();
    let (first, seconds) = (setting("OCTAVO_FUZZ_SEED"), setting("OCTAVO_FUZZ_SECONDS"));
    let limit = Duration::from_secs(seconds.unwrap_or(SECONDS));
    let begun = Instant::now();
    let mut tried = 0;
    for seed in first.unwrap_or(1).. {
        if begun.elapsed() > limit || (seconds.is_none() && tried == INPUTS) {
            break;
        }
        tried += 1;
        let result = catch_unwind(AssertUnwindSafe(|| one(&formats, seed)));
        assert!(
            result.is_ok(),
            "input {seed} fails; repeat it with OCTAVO_FUZZ_SEED={seed}"
        );
    }
    println!("{tried} inputs in {:.1} s", begun.elapsed().as_secs_f64());
    assert!(tried > 100, "only {tried} inputs in {limit:?}");
}
