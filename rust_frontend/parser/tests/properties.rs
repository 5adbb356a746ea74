//! What must hold for every format and any text.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::{Choice, all_formats, fail, fold, machine, machine_of, registry, run_all, show};
use octavo_grammar::{Calls, Codec, Format, Grammar, Kind, RenderedCall, RenderedMessage};
use octavo_parser::{Finish, Machine, Message, Options, Parser, Start, Tools};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Bytes that may be held back beside a marker: white space is looked through, and a name behind a quote.
const LOOK: usize = 256;

/// Cut a text at the given places, each a fraction of its length.
fn cut<'a>(text: &'a str, at: &[u16]) -> Vec<&'a str> {
    let mut places: Vec<usize> = at
        .iter()
        .map(|at| usize::from(*at) * text.len() / 65536)
        .collect();
    places.sort_unstable();
    let mut pieces = Vec::new();
    let mut from = 0;
    for place in places {
        let place = (from..=place)
            .rev()
            .find(|place| text.is_char_boundary(*place))
            .unwrap_or(from);
        pieces.push(&text[from..place]);
        from = place;
    }
    pieces.push(&text[from..]);
    pieces
}

/// Pieces of text that matter to a format.
fn alphabet(format: &Format) -> Vec<String> {
    let mut all: Vec<String> = format
        .markers
        .values()
        .flat_map(|marker| marker.texts().0.to_vec())
        .collect();
    let common = [
        "\n",
        " ",
        "  \n",
        "word",
        "a<b",
        "é🙂",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        ",",
        ":",
        "=",
        "\"",
        "'",
        "\\",
        "name",
        "\"name\": \"f\"",
        "\"arguments\": {\"a\": 1}",
        "{\"name\": \"f\", \"arguments\": {\"x\": \"y\"}}",
        "f(a=1, b='x')",
        "functions.f:0",
        "call:f{a:1}",
        " name=\"f\"",
        " to=functions.f",
        "json",
        "true",
        "12",
        "<",
        "</",
        "<|",
        "f",
        ">",
    ];
    all.extend(common.map(str::to_owned));
    all.extend(format.render.iter().map(|render| {
        render
            .call
            .replace("{name}", "f")
            .replace("{args}", "{\"a\": 1}")
    }));
    all
}

fn text_of(format: &Format) -> impl Strategy<Value = String> {
    let alphabet = alphabet(format);
    proptest::collection::vec(
        prop_oneof![4 => proptest::sample::select(alphabet).boxed(), 1 => "[a-z<>\\[\\]{} \n]{0,6}".boxed()],
        0..24,
    )
    .prop_map(|pieces| pieces.concat())
}

/// A request for a generated text.
#[derive(Debug, Clone)]
struct Request {
    start: u8,
    known: bool,
    parallel: bool,
    mode: u8,
    length: bool,
}

fn request() -> impl Strategy<Value = Request> {
    (
        0..3_u8,
        any::<bool>(),
        any::<bool>(),
        0..5_u8,
        any::<bool>(),
    )
        .prop_map(|(start, known, parallel, mode, length)| Request {
            start,
            known,
            parallel,
            mode,
            length,
        })
}

impl Request {
    fn options(&self) -> Options {
        let starts = [Start::Default, Start::Content, Start::Reasoning];
        let schema =
            json!({"properties": {"a": {"type": ["integer", "null"]}, "x": {"type": "string"}}});
        let tool = json!({"type": "function", "function": {"name": "f", "parameters": schema}});
        Options {
            start: starts[usize::from(self.start)].clone(),
            tools: if self.known {
                Tools::from_json(&[tool])
            } else {
                Tools::default()
            },
            parallel: self.parallel,
            ..Options::default()
        }
    }

    fn finish(&self) -> Finish {
        if self.length {
            Finish::Length
        } else {
            Finish::Stop
        }
    }
}

/// The machines of all modes: calls are calls (most often), hidden, or text.
fn modes(format: &Format) -> Vec<Arc<Machine>> {
    let tool = (!format.tool.is_empty()).then_some(format);
    let reasoning = (!format.reasoning.is_empty()).then_some(format);
    let calls = [
        Calls::Parse,
        Calls::Parse,
        Calls::Parse,
        Calls::Drop,
        Calls::Text,
    ];
    calls
        .iter()
        .map(|calls| Machine::new(Grammar::compose(tool, reasoning, *calls, true)))
        .collect()
}

/// Whether the parser writes all arguments itself, so that they are JSON whatever the model wrote.
fn writes_arguments(format: &Format) -> bool {
    let models_own = [
        Codec::JsonPassthrough,
        Codec::JsonObjectWithName,
        Codec::Verbatim,
    ];
    format
        .states
        .values()
        .all(|state| state.codec.is_none_or(|codec| !models_own.contains(&codec)))
}

#[test]
fn the_cut_does_not_matter() {
    run_all(150, |format, runner| {
        let machines = modes(format);
        let edges = machines[0]
            .grammar()
            .nodes
            .iter()
            .flat_map(|node| &node.edges);
        let longest = edges.map(|edge| edge.text.len()).max().unwrap_or(0);
        let own = writes_arguments(format);
        let input = (
            text_of(format),
            proptest::collection::vec(any::<u16>(), 0..12),
            request(),
        );
        let result = runner.run(&input, |(text, at, request)| {
            let machine = &machines[usize::from(request.mode)];
            let (options, finish) = (request.options(), request.finish());
            let (whole, _) = fold(machine, &options, &[&text], finish);
            let (pieces, held) = fold(machine, &options, &cut(&text, &at), finish);
            prop_assert_eq!(&whole, &pieces, "{}", text);
            let chars: Vec<String> = text.chars().map(String::from).collect();
            let chars: Vec<&str> = chars.iter().map(String::as_str).collect();
            let (each, _) = fold(machine, &options, &chars, finish);
            prop_assert_eq!(&whole, &each, "{}", text);
            prop_assert!(held <= longest + LOOK, "{held} bytes held");
            for call in whole.calls.iter().filter(|_| own && !request.length) {
                let json = serde_json::from_str::<Value>(&call.arguments);
                prop_assert!(
                    json.is_ok_and(|json| json.is_object()),
                    "{} -> {}",
                    text,
                    show(&whole)
                );
            }
            Ok(())
        });
        fail(format, result)
    });
}

/// Words that stand nowhere else; each must be said in exactly one place.
#[test]
fn no_word_is_lost() {
    run_all(150, |format, runner| {
        let machine = machine_of(format);
        let markers: Vec<String> = format
            .markers
            .values()
            .flat_map(|marker| marker.texts().0.to_vec())
            .collect();
        let markers: Vec<String> = markers
            .into_iter()
            .filter(|marker| marker.len() > 1)
            .chain([" ".to_owned()])
            .collect();
        let input = proptest::collection::vec(proptest::sample::select(markers), 0..10);
        let ignores = format
            .states
            .values()
            .any(|state| state.kind == Kind::Ignore);
        let result = runner.run(&input, |markers| {
            let mut text = String::new();
            for (index, marker) in markers.iter().enumerate() {
                text += &format!("{marker}Qx{index}z");
            }
            let (message, _) = fold(&machine, &Options::default(), &[&text], Finish::Stop);
            let mut said =
                message.content.clone() + " " + &message.reasoning + " " + &message.malformed;
            message
                .calls
                .iter()
                .for_each(|call| said += &format!(" {} {}", call.name, call.arguments));
            for index in 0..markers.len() {
                let word = format!("Qx{index}z");
                let count = said.matches(&word).count();
                prop_assert!(
                    count == 1 || (ignores && count == 0),
                    "{} {} times: {} -> {}",
                    word,
                    count,
                    text,
                    show(&message)
                );
            }
            Ok(())
        });
        fail(format, result)
    });
}

#[test]
fn work_is_linear() {
    for format in all_formats() {
        let machine = machine_of(&format);
        let mut units: Vec<String> = alphabet(&format);
        units.push("<".to_owned());
        units.push("{\"arguments\": ".to_owned());
        for unit in units.iter().filter(|unit| !unit.is_empty()) {
            let text = unit.repeat(8192 / unit.len() + 1);
            for size in [1, text.len()] {
                let mut parser = Parser::new(&machine, Options::default());
                let mut rest = text.as_str();
                while !rest.is_empty() {
                    let mut end = size.min(rest.len());
                    while !rest.is_char_boundary(end) {
                        end += 1;
                    }
                    parser.feed(&rest[..end]);
                    rest = &rest[end..];
                }
                parser.finish(Finish::Stop);
                let bound = 400 * text.len() as u64;
                assert!(
                    parser.work() < bound,
                    "{}: {unit:?} in pieces of {size}: {}",
                    format.name,
                    parser.work()
                );
            }
        }
    }
}

#[test]
fn plain_text_is_content() {
    for format in all_formats() {
        let machine = machine_of(&format);
        let text = "Just an answer, with 2 < 3 and a line\nbreak.";
        let options = Options {
            start: Start::After(String::new()),
            ..Options::default()
        };
        let (message, _) = fold(&machine, &options, &[text], Finish::Stop);
        let preface = machine.grammar().preface.clone();
        assert_eq!(message.content, preface + text, "{}", format.name);
    }
}

#[test]
fn tokens_of_thoughts_are_counted() {
    let machine = machine(
        &registry(),
        Choice {
            reasoning: Some("deepseek_r1"),
            ..Choice::default()
        },
    );
    for split in [false, true] {
        let mut parser = Parser::new(&machine, Options::default());
        let mut message = Message::default();
        for token in ["So", " it", " is", " \n", "</think>", "An", " answer"] {
            if token.starts_with('<') {
                parser.push_special(token)
            } else {
                parser.push_text(token)
            }
            parser.end_token();
            if split {
                parser.poll().iter().for_each(|event| message.add(event));
            }
        }
        parser.poll().iter().for_each(|event| message.add(event));
        parser
            .finish(Finish::Stop)
            .iter()
            .for_each(|event| message.add(event));
        assert_eq!(
            (message.reasoning_tokens, message.content.as_str()),
            (4, "An answer")
        );
    }
}

/// A long call costs each of its tokens the same: no queue grows with it.
#[test]
fn tokens_of_long_calls_cost_the_same_each() {
    let work = |machine: &Arc<Machine>, text: &str| {
        let mut parser = Parser::new(machine, Options::default());
        for letter in text.chars() {
            parser.push_text(letter.encode_utf8(&mut [0; 4]));
            parser.end_token();
            parser.poll();
        }
        parser.finish(Finish::Stop);
        parser.work()
    };
    for format in all_formats() {
        let Some(render) = format
            .render
            .as_ref()
            .filter(|render| !render.call.is_empty())
        else {
            continue;
        };
        let call = |length: usize| {
            let text = json!("word ".repeat(length));
            let arguments = [("text".to_owned(), text)].into_iter().collect();
            let name = "save".to_owned();
            let calls = vec![RenderedCall { name, arguments }];
            render.write(&RenderedMessage {
                calls,
                ..RenderedMessage::default()
            })
        };
        let machine = machine_of(&format);
        let (small, large) = (work(&machine, &call(200)), work(&machine, &call(1600)));
        assert!(
            large < 12 * small,
            "{}: {small} for 1,000 letters, {large} for 8,000",
            format.name
        );
    }
}
