//! What parsing costs for each token of four letters: nanoseconds and allocations. Run it with `--release`.
//!
//! Without arguments: a table of all formats. With `--json`: what `python -m bench.parser` keeps: plain text, thoughts,
//! and one format for each codec.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use octavo_grammar::{Calls, Format, Grammar, Registry, RenderedCall, RenderedMessage};
use octavo_parser::{Finish, Machine, Options, Parser, Start};
use serde_json::json;

const PROSE: &str = "The quick brown fox jumps over the lazy dog, and says so at some length. ";

/// A format for each codec.
const CODECS: [(&str, &str); 8] = [
    ("json_object_with_name", "hermes"),
    ("json_passthrough", "deepseek_v31"),
    ("xml_params", "qwen3_coder"),
    ("kv_tags", "glm45"),
    ("dsml", "deepseek_v32"),
    ("pythonic", "llama4_pythonic"),
    ("typed_kv", "gemma4"),
    ("xml_tree", "minimax_m3"),
];

/// Of one token.
#[derive(Debug, Clone, Copy)]
struct Cost {
    ns: f64,
    allocations: f64,
}

/// Feed a text in pieces of four letters, as a stream of tokens does.
fn feed(machine: &Arc<Machine>, tokens: &[String], start: &Start) {
    let options = Options {
        start: start.clone(),
        ..Options::default()
    };
    let mut parser = Parser::new(machine, options);
    for token in tokens {
        parser.push_text(token);
        parser.end_token();
        black_box(parser.poll());
    }
    black_box(parser.finish(Finish::Stop));
}

/// The least time of seven runs, and the allocations of one.
fn cost(machine: &Arc<Machine>, text: &str, start: &Start) -> Cost {
    let letters: Vec<char> = text.chars().collect();
    let tokens: Vec<String> = letters
        .chunks(4)
        .map(|part| part.iter().collect())
        .collect();
    let times = (0..7).map(|_| {
        let begun = Instant::now();
        feed(machine, &tokens, start);
        begun.elapsed().as_nanos() as f64
    });
    let count = tokens.len() as f64;
    let ns = times.fold(f64::INFINITY, f64::min) / count;
    let made = allocation_counter::measure(|| feed(machine, &tokens, start));
    Cost {
        ns,
        allocations: made.count_total as f64 / count,
    }
}

/// A message that calls one tool with a long text.
fn message(prose: &str) -> RenderedMessage {
    let arguments = [
        ("text".to_owned(), json!(prose)),
        ("count".to_owned(), json!(3)),
    ];
    let call = RenderedCall {
        name: "save".to_owned(),
        arguments: arguments.into_iter().collect(),
    };
    RenderedMessage {
        calls: vec![call],
        ..RenderedMessage::default()
    }
}

fn machine(tool: Option<&Format>, reasoning: Option<&Format>) -> Arc<Machine> {
    Machine::new(Grammar::compose(tool, reasoning, Calls::Parse, true))
}

fn main() {
    let registry = Registry::builtin().expect("the formats that ship are valid");
    let prose = PROSE.repeat(400);
    if std::env::args().any(|argument| argument == "--json") {
        as_json(&registry, &prose);
    } else {
        table(&registry, &prose);
        println!("64 KiB of `<`: {:.2} ms", angles(&registry));
    }
}

fn as_json(registry: &Registry, prose: &str) {
    let mut found: BTreeMap<String, Cost> = BTreeMap::new();
    let both = machine(registry.tool("hermes"), registry.reasoning("qwen3"));
    found.insert("plain".to_owned(), cost(&both, prose, &Start::Content));
    found.insert(
        "reasoning".to_owned(),
        cost(&both, prose, &Start::Reasoning),
    );
    for (codec, name) in CODECS {
        let format = registry.tool(name).expect("a name that ships");
        let render = format.render.as_ref().expect("a format that writes");
        let text = render.write(&message(prose));
        let cost = cost(&machine(Some(format), None), &text, &Start::Content);
        found.insert(codec.to_owned(), cost);
    }
    let rows: BTreeMap<String, _> = found
        .into_iter()
        .map(|(name, cost)| {
            (
                name,
                json!({"ns": cost.ns, "allocations": cost.allocations}),
            )
        })
        .collect();
    println!("{}", json!({"tokens": rows, "angles_ms": angles(registry)}));
}

fn table(registry: &Registry, prose: &str) {
    println!(
        "{:>18} {:>14} {:>14} {:>14}   ns and allocations of a token",
        "format", "answer", "reasoning", "call"
    );
    for format in registry.formats() {
        let machine = machine(Some(format), Some(format));
        let writes = format
            .render
            .as_ref()
            .filter(|render| !render.call.is_empty());
        let called = writes.map(|render| render.write(&message(prose)));
        let reasons = machine.grammar().reasoning.is_some();
        let shown = |cost: Option<Cost>| {
            cost.map_or_else(
                || "-".to_owned(),
                |cost| format!("{:.0} {:>5.2}", cost.ns, cost.allocations),
            )
        };
        println!(
            "{:>18} {:>14} {:>14} {:>14}",
            format.name,
            shown(Some(cost(&machine, prose, &Start::Content))),
            shown(reasons.then(|| cost(&machine, prose, &Start::Reasoning))),
            shown(called.map(|text| cost(&machine, &text, &Start::Content))),
        );
    }
}

/// Milliseconds for a text in which every letter may begin a marker.
fn angles(registry: &Registry) -> f64 {
    let machine = machine(registry.tool("qwen3_coder"), registry.reasoning("qwen3"));
    let angles = "<".repeat(64 * 1024);
    let begun = Instant::now();
    let mut parser = Parser::new(&machine, Options::default());
    black_box(parser.feed(&angles));
    black_box(parser.finish(Finish::Stop));
    begun.elapsed().as_secs_f64() * 1e3
}
