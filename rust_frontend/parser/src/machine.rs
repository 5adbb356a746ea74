//! The table machine: one parser of one answer.

use std::sync::Arc;

use octavo_grammar::{Codec as Named, Grammar, Kind, Node, Target};

use crate::codec::Codec;
use crate::event::{Event, Finish};
use crate::fields::Fields;
use crate::head;
use crate::lexer::{Buffer, Markers};
use crate::sink::{Sink, Verdict};
use crate::tools::Tools;

/// A grammar made ready: shared by all answers of a model.
#[derive(Debug)]
pub struct Machine {
    pub(crate) grammar: Grammar,
    pub(crate) markers: Vec<Markers>,
}

impl Machine {
    /// Make a grammar ready.
    pub fn new(grammar: Grammar) -> Arc<Self> {
        let markers = grammar.nodes.iter().map(Markers::new).collect();
        Arc::new(Self { grammar, markers })
    }

    /// Whether a marker of the grammar holds this text.
    fn mentions(&self, text: &str) -> bool {
        self.grammar.nodes.iter().any(|node| {
            node.edges.iter().any(|edge| edge.text.contains(text))
                || node.state.quote.contains(text)
                || node.state.channel.contains(text)
                || node
                    .state
                    .openers
                    .iter()
                    .any(|opener| opener.contains(text))
        })
    }

    /// Return the grammar.
    pub fn grammar(&self) -> &Grammar {
        &self.grammar
    }
}

/// What the first character belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// What the format says.
    Default,
    /// The answer.
    Content,
    /// Thoughts: the prompt has opened them.
    Reasoning,
    /// What the end of the prompt says; the answer where it says nothing.
    After(String),
}

/// What the request says.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its tools.
    pub tools: Tools,
    /// What the first character belongs to.
    pub start: Start,
    /// Whether more than one call is wanted; else the answer ends with the first.
    pub parallel: bool,
    /// Seed of the calls' ids.
    pub seed: u64,
    /// Whether special tokens that mark nothing are left out.
    pub skip_special: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tools: Tools::default(),
            start: Start::Default,
            parallel: true,
            seed: 0,
            skip_special: true,
        }
    }
}

/// Where an answer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// The state of the first character.
    pub node: usize,
    /// Whether the prompt has begun a message's head and said in it what the message is.
    pub inside_head: bool,
}

impl Opening {
    /// Find where an answer begins.
    pub fn of(machine: &Arc<Machine>, start: &Start) -> Self {
        let options = Options {
            start: start.clone(),
            ..Options::default()
        };
        Parser::new(machine, options).opening()
    }
}

/// The parser of one answer: pieces of text in, events out.
///
/// Whatever the pieces, the events folded are the same. It never fails: text that breaks the format is content or a
/// [`Event::Malformed`], as the format says.
#[derive(Debug)]
pub struct Parser {
    pub(crate) machine: Arc<Machine>,
    pub(crate) buffer: Buffer,
    pub(crate) sink: Sink,
    pub(crate) node: usize,
    /// Where the section of calls began.
    pub(crate) back: usize,
    /// Name, key or head in the making; or white space after a complete value.
    pub(crate) text: String,
    pub(crate) codec: Option<Codec>,
    pub(crate) fields: Option<Fields>,
    pub(crate) call: String,
    /// What was read of a call that is not open yet, with its markers and without.
    pub(crate) raw: String,
    pub(crate) inner: String,
    pub(crate) committed: bool,
    pub(crate) skip_special: bool,
    finished: bool,
}

impl Parser {
    /// Begin an answer.
    pub fn new(machine: &Arc<Machine>, options: Options) -> Self {
        let grammar = &machine.grammar;
        let node = match &options.start {
            Start::Default => grammar.start,
            Start::Content => grammar.content,
            Start::Reasoning => grammar.reasoning.unwrap_or(grammar.start),
            Start::After(tail) => grammar
                .start_after(tail)
                .unwrap_or_else(|| grammar.unopened()),
        };
        let mut sink = Sink::new(
            options.tools,
            grammar.ids,
            grammar.unknown_tool,
            options.seed,
        );
        sink.restrict(grammar.drop_calls, options.parallel);
        sink.content(&grammar.preface);
        let mut parser = Self {
            machine: Arc::clone(machine),
            buffer: Buffer::default(),
            sink,
            node,
            back: grammar.content,
            text: String::new(),
            codec: None,
            fields: None,
            call: String::new(),
            raw: String::new(),
            inner: String::new(),
            committed: false,
            skip_special: options.skip_special,
            finished: false,
        };
        if let Start::After(tail) = &options.start
            && grammar.nodes[grammar.start].state.kind == Kind::Header
        {
            parser.replay(tail);
        }
        parser
    }

    /// Read the head of a message that the prompt has begun; what it says is not the answer's.
    fn replay(&mut self, tail: &str) {
        let grammar = &self.machine.grammar;
        let start = grammar.start;
        let edges = grammar.nodes.iter().flat_map(|node| &node.edges);
        let heads = edges.filter(|edge| !edge.keep && edge.target == Target::Node(start));
        let begun = heads
            .filter_map(|edge| tail.rfind(edge.text.as_str()))
            .max();
        if let Some(at) = begun {
            self.node = start;
            self.push_text(&tail[at..]);
            self.run(false);
            self.buffer.compact();
            self.sink.take();
            self.sink.pause();
        }
    }

    /// Take a piece of text and return what it sets free.
    pub fn feed(&mut self, text: &str) -> Vec<Event> {
        self.push_text(text);
        self.poll()
    }

    /// Take text without reading it yet; [`Self::poll`] reads.
    pub fn push_text(&mut self, text: &str) {
        self.buffer.push(text);
    }

    /// Take a special token by its text. One that no marker of the format holds is left out at once, so that it
    /// cannot stand between the parts of a marker.
    pub fn push_special(&mut self, text: &str) {
        if !self.skip_special || self.machine.mentions(text) {
            self.buffer.push_special(text);
        }
    }

    /// Whether a special token of this text marks something in the format.
    pub fn marks(&self, text: &str) -> bool {
        self.machine.mentions(text)
    }

    /// Say that a token ends here, for the count of tokens in thoughts.
    pub fn end_token(&mut self) {
        self.buffer.end_token();
    }

    /// Read what was taken and return the events.
    pub fn poll(&mut self) -> Vec<Event> {
        if self.finished {
            return Vec::new();
        }
        self.run(false);
        self.buffer.compact();
        self.sink.take()
    }

    /// End the answer: everything held back is said. The last event is [`Event::End`].
    pub fn finish(&mut self, finish: Finish) -> Vec<Event> {
        if self.finished {
            return Vec::new();
        }
        self.run(true);
        self.end(finish);
        self.finished = true;
        self.sink.take()
    }

    /// Whether the answer is complete although the model may go on: the one call that was wanted is closed.
    pub fn is_done(&self) -> bool {
        self.sink.is_cut()
    }

    /// Bytes that are held back because they may become a marker.
    pub fn held(&self) -> usize {
        self.buffer.held()
    }

    /// Searches and comparisons done so far, for the test that work is linear.
    pub fn work(&self) -> u64 {
        self.buffer.work
    }

    pub(crate) fn opening(&self) -> Opening {
        let node = self.state();
        let said = format!("{}{}", self.text, self.buffer.rest());
        Opening {
            node: self.node,
            inside_head: node.state.kind == Kind::Header && head::route(node, &said).is_head,
        }
    }

    pub(crate) fn state(&self) -> &Node {
        &self.machine.grammar.nodes[self.node]
    }

    fn run(&mut self, last: bool) {
        let mut idle = 0;
        while self.buffer.held() > 0 {
            let held = self.buffer.held();
            if !self.step(last) {
                break;
            }
            idle = if self.buffer.held() == held {
                idle + 1
            } else {
                0
            };
            if idle > 2 * self.machine.grammar.nodes.len() + 8 {
                // A format whose kept markers lead in a circle: the character is text, and reading goes on.
                idle = 0;
                let next = self.buffer.rest().chars().next().map_or(0, char::len_utf8);
                self.sink.content(self.buffer.advance(next));
            }
        }
    }

    /// Read on; false where more text is needed.
    fn step(&mut self, last: bool) -> bool {
        match self.state().state.kind {
            Kind::Args if self.codec.is_some() => self.step_codec(last),
            Kind::Args => self.step_done(last),
            Kind::Header if self.text.is_empty() => self.step_head(last),
            Kind::Params if self.waits_for_value() => self.step_params(last),
            _ => self.step_text(last),
        }
    }
}

/// Whether entering this state begins a call.
pub(crate) fn begins(node: &Node) -> bool {
    match node.state.kind {
        Kind::Name => true,
        Kind::Args => Codec::names(node.state.codec),
        _ => false,
    }
}

/// Whether keys of this state stand in markers of their own, apart from values.
pub(crate) fn keys_apart(node: &Node) -> bool {
    node.state.codec == Some(Named::KvTags)
}

/// Whether the name became text that must be given back.
pub(crate) fn is_text(verdict: Verdict) -> bool {
    verdict == Verdict::Text
}
