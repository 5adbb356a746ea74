//! What parsing costs: nanoseconds for each token of four characters, by format. Run it with `--release`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use octavo_grammar::{Calls, Grammar, Registry, RenderedCall, RenderedMessage};
use octavo_parser::{Finish, Machine, Options, Parser, Start};
use serde_json::json;

const PROSE: &str = "The quick brown fox jumps over the lazy dog, and says so at some length. ";

/// Feed a text in pieces of four characters, as a stream of tokens does; return the least of five times.
fn cost(machine: &Arc<Machine>, text: &str, start: &Start) -> f64 {
    let chars: Vec<char> = text.chars().collect();
    let tokens: Vec<String> = chars.chunks(4).map(|part| part.iter().collect()).collect();
    let times = (0..5).map(|_| {
        let options = Options {
            start: start.clone(),
            ..Options::default()
        };
        let begun = Instant::now();
        let mut parser = Parser::new(machine, options);
        for token in &tokens {
            black_box(parser.feed(token));
        }
        black_box(parser.finish(Finish::Stop));
        begun.elapsed().as_nanos() as f64 / tokens.len() as f64
    });
    times.fold(f64::INFINITY, f64::min)
}

fn main() {
    let registry = Registry::builtin().expect("the formats that ship are valid");
    let prose = PROSE.repeat(400);
    let call = RenderedCall {
        name: "save".to_owned(),
        arguments: [
            ("text".to_owned(), json!(prose)),
            ("count".to_owned(), json!(3)),
        ]
        .into_iter()
        .collect(),
    };
    let message = RenderedMessage {
        calls: vec![call],
        ..RenderedMessage::default()
    };
    println!(
        "{:>18} {:>8} {:>10} {:>8}   ns per token",
        "format", "answer", "reasoning", "call"
    );
    for format in registry.formats() {
        let machine = Machine::new(Grammar::compose(
            Some(format),
            Some(format),
            Calls::Parse,
            true,
        ));
        let writes = format
            .render
            .as_ref()
            .filter(|render| !render.call.is_empty());
        let called = writes.map(|render| render.write(&message));
        let reasons = machine.grammar().reasoning.is_some();
        println!(
            "{:>18} {:>8.0} {:>10.0} {:>8.0}",
            format.name,
            cost(&machine, &prose, &Start::Content),
            if reasons {
                cost(&machine, &prose, &Start::Reasoning)
            } else {
                f64::NAN
            },
            called.map_or(f64::NAN, |text| cost(&machine, &text, &Start::Content)),
        );
    }
    angles(&registry);
}

/// What a text costs in which every character may begin a marker.
fn angles(registry: &Registry) {
    let machine = Machine::new(Grammar::compose(
        registry.tool("qwen3_coder"),
        registry.reasoning("qwen3"),
        Calls::Parse,
        true,
    ));
    let angles = "<".repeat(64 * 1024);
    let begun = Instant::now();
    let mut parser = Parser::new(&machine, Options::default());
    black_box(parser.feed(&angles));
    black_box(parser.finish(Finish::Stop));
    println!(
        "64 KiB of `<`: {:.2} ms",
        begun.elapsed().as_secs_f64() * 1e3
    );
}
