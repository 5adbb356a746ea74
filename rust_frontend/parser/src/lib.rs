//! The streaming parser for reasoning and tool calls: pieces of text in, events out.
//!
//! One machine runs a [`octavo_grammar::Grammar`]; nothing here knows a model. Events only append, their fold does not
//! depend on how the text was cut, and every state has a defined end. An answer that does not stream is the fold
//! ([`Message`]) over the same events. `docs/parser.md` tells more.

mod codec;
mod codec_calls;
mod codec_python;
mod codec_tree;
mod codec_typed;
mod coerce;
mod cross;
mod event;
mod fields;
mod head;
mod ids;
mod json;
mod lexer;
mod machine;
mod message;
mod python_literal;
mod sink;
mod source;
mod steps;
mod tools;

pub use event::{Event, Finish, Malformed};
pub use machine::{Machine, Opening, Options, Parser, Start};
pub use message::{Message, ToolCall};
pub use source::{Detokenize, Source, Specials};
pub use tools::{Parameters, Tools, Types};

/// Parse a whole text: feed, finish, fold.
pub fn parse(
    machine: &std::sync::Arc<Machine>,
    options: Options,
    text: &str,
    finish: Finish,
) -> Message {
    let mut parser = Parser::new(machine, options);
    let mut events = parser.feed(text);
    events.extend(parser.finish(finish));
    events.iter().collect()
}
