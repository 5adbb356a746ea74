//! What must hold for every format and any text.

mod common;

use std::sync::Arc;

use common::{Choice, machine, registry, same_value, show};
use octavo_grammar::{ArgumentStyle, Format, Kind, RenderedCall, RenderedMessage};
use octavo_parser::{Event, Finish, Machine, Message, Options, Parser, Start, Tools};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Bytes that may be held back beside a marker: white space is looked through, and a name behind a quote.
const LOOK: usize = 256;

fn all_formats() -> Vec<Format> {
    registry().formats().to_vec()
}

fn machine_of(format: &Format) -> Arc<Machine> {
    let tool = format.tool.first().map(String::as_str);
    let reasoning = format.reasoning.first().map(String::as_str);
    machine(
        &registry(),
        Choice {
            tool,
            reasoning,
            ..Choice::default()
        },
    )
}

fn fold(
    machine: &Arc<Machine>,
    options: &Options,
    pieces: &[&str],
    finish: Finish,
) -> (Message, usize) {
    let mut parser = Parser::new(machine, options.clone());
    let mut message = Message::default();
    let mut held = 0;
    for piece in pieces {
        parser
            .feed(piece)
            .iter()
            .for_each(|event| message.add(event));
        held = held.max(parser.held());
    }
    let events = parser.finish(finish);
    assert!(matches!(events.last(), Some(Event::End { .. })));
    events.iter().for_each(|event| message.add(event));
    assert_eq!(parser.held(), 0, "held at the end");
    (message, held)
}

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

fn run_all(
    cases: u32,
    check: impl Fn(&Format, &mut proptest::test_runner::TestRunner) -> Option<String>,
) {
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let mut failed = Vec::new();
    for format in all_formats() {
        let mut runner = proptest::test_runner::TestRunner::new_with_rng(
            config.clone(),
            proptest::test_runner::TestRng::deterministic_rng(
                proptest::test_runner::RngAlgorithm::ChaCha,
            ),
        );
        failed.extend(check(&format, &mut runner));
    }
    assert!(
        failed.is_empty(),
        "{} formats fail\n{}",
        failed.len(),
        failed.join("\n\n")
    );
}

fn fail<T: std::fmt::Debug>(
    format: &Format,
    result: Result<(), proptest::test_runner::TestError<T>>,
) -> Option<String> {
    result
        .err()
        .map(|error| format!("{}: {error}", format.name))
}

#[test]
fn the_cut_does_not_matter() {
    run_all(150, |format, runner| {
        let machine = machine_of(format);
        let longest = machine
            .grammar()
            .nodes
            .iter()
            .flat_map(|node| &node.edges)
            .map(|edge| edge.text.len())
            .max();
        let input = (
            text_of(format),
            proptest::collection::vec(any::<u16>(), 0..12),
            any::<bool>(),
            0..3_u8,
        );
        let result = runner.run(&input, |(text, at, length, start)| {
            let finish = if length { Finish::Length } else { Finish::Stop };
            let start =
                [Start::Default, Start::Content, Start::Reasoning][usize::from(start)].clone();
            let options = Options {
                start,
                ..Options::default()
            };
            let (whole, _) = fold(&machine, &options, &[&text], finish);
            let (pieces, held) = fold(&machine, &options, &cut(&text, &at), finish);
            prop_assert_eq!(&whole, &pieces, "{}", text);
            let chars: Vec<String> = text.chars().map(String::from).collect();
            let chars: Vec<&str> = chars.iter().map(String::as_str).collect();
            let (each, _) = fold(&machine, &options, &chars, finish);
            prop_assert_eq!(&whole, &each, "{}", text);
            prop_assert!(held <= longest.unwrap_or(0) + LOOK, "{held} bytes held");
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

fn value(style: ArgumentStyle) -> impl Strategy<Value = Value> {
    let nasty = prop_oneof![
        Just(String::new()),
        Just("</tool_call>".to_owned()),
        Just("<|tool_call_end|> and \"}]} '; \\ \n\t".to_owned()),
        Just("a < b && c > d".to_owned()),
        Just("true".to_owned()),
        Just("12".to_owned()),
        Just("null".to_owned()),
        Just("\n two lines \n".to_owned()),
        "[a-zA-Z0-9 .,:;'\"(){}\\[\\]\\\\é🙂\n-]{0,12}",
    ];
    let leaf = prop_oneof![
        4 => nasty.prop_map(Value::String),
        1 => any::<i32>().prop_map(|number| json!(number)),
        1 => any::<bool>().prop_map(|flag| json!(flag)),
        1 => (-1000..1000_i32).prop_map(|number| json!(f64::from(number) / 8.0)),
    ];
    let deep = leaf.clone().prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            proptest::collection::vec(("[a-z]{1,5}", inner), 0..3).prop_map(|pairs| {
                Value::Object(pairs.into_iter().collect::<Map<String, Value>>())
            }),
        ]
    });
    let _ = style;
    deep
}

fn message(style: ArgumentStyle) -> impl Strategy<Value = RenderedMessage> {
    let call = (
        "[a-z][a-z_]{1,8}",
        proptest::collection::vec(("[a-z]{1,6}", value(style)), 0..4),
    )
        .prop_map(|(name, pairs)| RenderedCall {
            name,
            arguments: pairs.into_iter().collect(),
        });
    let prose = "([A-Z][a-z]{1,5}( [a-zé,]{1,6}){0,4}\\.)?";
    (prose, prose, proptest::collection::vec(call, 0..4)).prop_map(|(reasoning, content, calls)| {
        RenderedMessage {
            reasoning,
            content,
            calls,
        }
    })
}

/// Whether a string inside the value holds one of the texts.
fn holds(value: &Value, texts: &[String]) -> bool {
    match value {
        Value::String(text) => texts.iter().any(|marker| text.contains(marker.as_str())),
        Value::Array(items) => items.iter().any(|item| holds(item, texts)),
        Value::Object(map) => map.values().any(|item| holds(item, texts)),
        _ => false,
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A tool for each call, whose schema says the types of its arguments; calls of one name share the first's arguments.
fn tools_for(message: &mut RenderedMessage) -> Tools {
    message
        .calls
        .iter_mut()
        .enumerate()
        .for_each(|(index, call)| call.name += &format!("_{index}x"));
    let tools: Vec<Value> = message
        .calls
        .iter()
        .map(|call| {
            let types: Map<String, Value> =
                call.arguments.iter().map(|(key, value)| (key.clone(), json!({"type": type_of(value)}))).collect();
            json!({"type": "function", "function": {"name": call.name, "parameters": {"properties": types}}})
        })
        .collect();
    Tools::from_json(&tools)
}

#[test]
fn what_is_written_is_read() {
    run_all(120, |format, runner| {
        let Some(render) = format.render.clone() else {
            return None;
        };
        let machine = machine_of(format);
        // Without an escape, a value cannot hold the format's own markers.
        let unescaped = matches!(
            render.arguments,
            ArgumentStyle::Params | ArgumentStyle::TypedKv
        );
        let mut markers: Vec<String> = format
            .markers
            .values()
            .flat_map(|marker| marker.texts().0.to_vec())
            .collect();
        markers.retain(|marker| marker.len() > 1);
        markers.push(render.quote.clone());
        markers.retain(|marker| !marker.is_empty());
        let result = runner.run(&message(render.arguments), |mut message| {
            if render.reasoning.is_empty() {
                message.reasoning.clear();
            }
            if render.call.is_empty() {
                message.calls.clear();
            }
            if unescaped {
                message
                    .calls
                    .iter_mut()
                    .for_each(|call| call.arguments.retain(|_, value| !holds(value, &markers)));
            }
            let tools = tools_for(&mut message);
            let opens = format.start != "reasoning" || message.reasoning.is_empty();
            let start = if opens {
                Start::Content
            } else {
                Start::Reasoning
            };
            let header = format
                .states
                .get(&format.start)
                .is_some_and(|state| state.kind == Kind::Header);
            let options = Options {
                tools,
                start: if header { Start::Default } else { start },
                ..Options::default()
            };
            let text = render.write(&message);
            let (read, _) = fold(&machine, &options, &[&text], Finish::Stop);
            prop_assert_eq!(&read.content, &message.content, "{}", text);
            prop_assert_eq!(&read.reasoning, &message.reasoning, "{}", text);
            prop_assert_eq!(
                read.calls.len(),
                message.calls.len(),
                "{} -> {}",
                text,
                show(&read)
            );
            for (call, want) in read.calls.iter().zip(&message.calls) {
                let arguments: Value = serde_json::from_str(&call.arguments).map_err(|error| {
                    TestCaseError::fail(format!("{error}: {} of {text}", call.arguments))
                })?;
                prop_assert_eq!(&call.name, &want.name);
                prop_assert!(
                    same_value(&arguments, &Value::Object(want.arguments.clone())),
                    "{} -> {}",
                    text,
                    show(&read)
                );
            }
            prop_assert_eq!(read.malformed.as_str(), "", "{}", text);
            // Special tokens by id say the same.
            let mut parser = Parser::new(&machine, options);
            let mut by_id = Message::default();
            if !message.calls.iter().any(|call| {
                call.arguments
                    .values()
                    .any(|value| holds(value, &["<".to_owned()]))
            }) {
                push_tokens(&mut parser, &text);
                parser
                    .poll()
                    .iter()
                    .chain(&parser.finish(Finish::Stop))
                    .for_each(|event| by_id.add(event));
                prop_assert_eq!(&by_id, &read, "by id: {}", text);
            }
            Ok(())
        });
        fail(format, result)
    });
}

/// Feed what looks like a special token as one.
fn push_tokens(parser: &mut Parser, text: &str) {
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let Some(end) = rest[at..].find('>').map(|end| at + end + 1) else {
            break;
        };
        parser.push_text(&rest[..at]);
        if rest[at..end].contains(['|', '｜']) && !rest[at..end].contains(char::is_whitespace) {
            parser.push_special(&rest[at..end]);
        } else {
            parser.push_text(&rest[at..end]);
        }
        rest = &rest[end..];
    }
    parser.push_text(rest);
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
