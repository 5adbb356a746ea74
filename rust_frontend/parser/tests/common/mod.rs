//! What the tests share: the recorded material beside the project, and formats by name.
#![allow(dead_code, unreachable_pub)]

use std::path::PathBuf;
use std::sync::Arc;

use octavo_grammar::{Calls, ChoiceNone, Format, Grammar, Registry};
use octavo_parser::{Event, Finish, Machine, Message, Options, Parser, ToolCall};
use proptest::prelude::*;
use serde_json::Value;

/// The folder of recorded material; none where this checkout has none.
pub fn shared() -> Option<PathBuf> {
    let folder = std::env::var_os("OCTAVO_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    folder.is_dir().then_some(folder)
}

/// The shipped formats.
pub fn registry() -> Registry {
    Registry::builtin().unwrap()
}

/// What a request chooses.
#[derive(Debug, Clone, Copy, Default)]
pub struct Choice<'a> {
    pub tool: Option<&'a str>,
    pub reasoning: Option<&'a str>,
    pub none: bool,
    pub off: bool,
}

/// Make the machine of a request.
pub fn machine(registry: &Registry, choice: Choice<'_>) -> Arc<Machine> {
    let tool = choice.tool.map(|name| {
        registry
            .tool(name)
            .unwrap_or_else(|| panic!("no tool format {name}"))
    });
    let reasoning = choice.reasoning.map(|name| {
        registry
            .reasoning(name)
            .unwrap_or_else(|| panic!("no reasoning format {name}"))
    });
    let calls = match tool {
        None => Calls::Text,
        Some(_) if !choice.none => Calls::Parse,
        Some(Format {
            choice_none: ChoiceNone::Drop,
            ..
        }) => Calls::Drop,
        Some(_) => Calls::Text,
    };
    Machine::new(Grammar::compose(tool, reasoning, calls, !choice.off))
}

/// Whether two texts are equal as JSON, or as texts where one is not JSON.
pub fn same_json(a: &str, b: &str) -> bool {
    match (
        serde_json::from_str::<Value>(a),
        serde_json::from_str::<Value>(b),
    ) {
        (Ok(a), Ok(b)) => same_value(&a, &b),
        _ => a == b,
    }
}

/// Whether two values are equal, numbers by value.
pub fn same_value(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_value(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(key, a)| b.get(key).is_some_and(|b| same_value(a, b)))
        }
        _ => a == b,
    }
}

/// Whether the calls are those expected: names, and arguments as JSON.
pub fn same_calls(calls: &[ToolCall], expected: &[(String, String)]) -> bool {
    calls.len() == expected.len()
        && calls
            .iter()
            .zip(expected)
            .all(|(call, (name, args))| call.name == *name && same_json(&call.arguments, args))
}

/// A message in one line, for failures.
pub fn show(message: &Message) -> String {
    let calls: Vec<String> = message
        .calls
        .iter()
        .map(|call| format!("{}({})", call.name, call.arguments))
        .collect();
    format!(
        "content={:?} reasoning={:?} calls={calls:?} malformed={:?}",
        message.content, message.reasoning, message.malformed
    )
}

pub fn all_formats() -> Vec<Format> {
    registry().formats().to_vec()
}

pub fn machine_of(format: &Format) -> Arc<Machine> {
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

pub fn fold(
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

pub fn run_all(
    cases: u32,
    check: impl Fn(&Format, &mut proptest::test_runner::TestRunner) -> Option<String>,
) {
    // A longer search by hand: OCTAVO_CASES=20 runs twenty times as many.
    let times = std::env::var("OCTAVO_CASES")
        .ok()
        .and_then(|times| times.parse().ok())
        .unwrap_or(1);
    let config = ProptestConfig {
        cases: cases * times,
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

pub fn fail<T: std::fmt::Debug>(
    format: &Format,
    result: Result<(), proptest::test_runner::TestError<T>>,
) -> Option<String> {
    result
        .err()
        .map(|error| format!("{}: {error}", format.name))
}
