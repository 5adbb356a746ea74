//! The table machine: one parser of one answer.

use std::sync::Arc;

use octavo_grammar::{Codec as Named, Grammar, Kind, Node, Target, TextRule};

use crate::codec::{Codec, Step};
use crate::event::{Event, Finish, Malformed};
use crate::fields::Fields;
use crate::lexer::{Buffer, Hit, Markers};
use crate::sink::{Sink, Verdict};
use crate::tools::Tools;

/// How far white space is looked through for what follows a marker.
const MAX_LOOK: usize = 64;

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
    skip_special: bool,
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
        Self {
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

    pub(crate) fn state(&self) -> &Node {
        &self.machine.grammar.nodes[self.node]
    }

    fn run(&mut self, last: bool) {
        while self.buffer.held() > 0 {
            let kind = self.state().state.kind;
            let more = match kind {
                Kind::Args if self.codec.is_some() => self.step_codec(last),
                Kind::Args => self.step_done(last),
                Kind::Header if self.text.is_empty() => self.step_head(last),
                Kind::Params if self.waits_for_value() => self.step_params(last),
                _ => self.step_text(last),
            };
            if !more {
                break;
            }
        }
    }

    /// Read text up to the next marker, and the marker.
    fn step_text(&mut self, last: bool) -> bool {
        let machine = Arc::clone(&self.machine);
        let node = &machine.grammar.nodes[self.node];
        match self.buffer.find(node, &machine.markers[self.node], last) {
            Hit::Text { to } => {
                self.take_text(to);
                false
            }
            Hit::Special { at, len } => {
                self.take_text(at);
                if self.skip_special && node.state.kind != Kind::Header {
                    self.buffer.advance(len);
                } else {
                    self.take_text(len);
                }
                true
            }
            Hit::Edge { at, edge } => {
                self.take_text(at);
                let len = node.edges[edge].text.len();
                if node.state.kind == Kind::Value
                    && !node.followers.is_empty()
                    && self.leads_to_params(node, edge)
                {
                    match self.is_followed(node, len, last) {
                        None => return false,
                        Some(false) => {
                            self.take_text(len);
                            return true;
                        }
                        Some(true) => {}
                    }
                }
                self.cross(node, edge);
                true
            }
        }
    }

    fn leads_to_params(&self, node: &Node, edge: usize) -> bool {
        matches!(node.edges[edge].target, Target::Node(to) if self.machine.grammar.nodes[to].state.kind == Kind::Params)
    }

    /// Whether a marker that may stand inside of a value ends it: one of the format's markers follows.
    fn is_followed(&self, node: &Node, len: usize, last: bool) -> Option<bool> {
        let rest = &self.buffer.rest()[len..];
        let after = rest.trim_start();
        if rest.len() - after.len() > MAX_LOOK
            || node
                .followers
                .iter()
                .any(|text| after.starts_with(text.as_str()))
        {
            return Some(true);
        }
        if node.followers.iter().any(|text| text.starts_with(after)) {
            return last.then_some(true);
        }
        Some(false)
    }

    /// Take text of the current state.
    fn take_text(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let machine = Arc::clone(&self.machine);
        let state = &machine.grammar.nodes[self.node].state;
        let text = self.buffer.advance(count);
        if state.kind.is_inside_call() && !self.committed {
            self.raw.push_str(text);
            self.inner.push_str(text);
        }
        match state.kind {
            Kind::Content => self.sink.content(text),
            Kind::Reasoning => {
                let text = text.to_owned();
                (0..self.buffer.take_tokens()).for_each(|_| self.sink.token_of_thought());
                self.sink.reasoning(&text, state.trim);
            }
            Kind::Between if state.text == TextRule::Content => self.sink.content(text),
            Kind::Between | Kind::Params => self.sink.malformed(Malformed::Stray, text),
            Kind::Header | Kind::Name | Kind::Key => self.text.push_str(text),
            Kind::Value => {
                if let Some(fields) = &mut self.fields {
                    fields.text(&mut self.sink, text, state.trim);
                }
            }
            Kind::Ignore | Kind::Args => {}
        }
        if state.kind != Kind::Reasoning {
            self.buffer.take_tokens();
        }
    }

    /// Read one argument value, character by character.
    fn step_codec(&mut self, last: bool) -> bool {
        let machine = Arc::clone(&self.machine);
        let node = &machine.grammar.nodes[self.node];
        while let Some(c) = self.buffer.rest().chars().next() {
            let Some(codec) = &mut self.codec else {
                return true;
            };
            let count = codec.markers_count();
            match self
                .buffer
                .matches_quick(node, &machine.markers[self.node], count, last)
            {
                Some(Hit::Edge { edge, .. }) => {
                    self.cross(node, edge);
                    return true;
                }
                Some(Hit::Special { len, .. })
                    if self.skip_special && !node.state.quote.starts_with(c) =>
                {
                    self.buffer.advance(len);
                    continue;
                }
                Some(Hit::Text { .. }) => return false,
                _ => {}
            }
            let step = codec.push(c, &mut self.sink);
            self.committed |= codec.committed();
            if matches!(step, Step::More | Step::Done) {
                let text = self.buffer.advance(c.len_utf8());
                if !self.committed {
                    self.raw.push_str(text);
                    self.inner.push_str(text);
                }
            }
            match step {
                Step::More => {}
                Step::Done | Step::Before => {
                    self.text = codec.gap();
                    self.codec = None;
                    return true;
                }
                Step::Fail => {
                    self.fail();
                    return true;
                }
            }
        }
        false
    }

    /// After a complete value: white space is layout before a marker; other text leads on.
    fn step_done(&mut self, last: bool) -> bool {
        let machine = Arc::clone(&self.machine);
        let node = &machine.grammar.nodes[self.node];
        let hit = self.buffer.find(node, &machine.markers[self.node], last);
        let (Hit::Edge { at: to, .. } | Hit::Special { at: to, .. } | Hit::Text { to }) = hit;
        let space = to - self.buffer.rest()[..to].trim_start().len();
        let space = self.buffer.advance(space.min(to)).to_owned();
        self.text.push_str(&space);
        if space.len() < to {
            let gap = std::mem::take(&mut self.text);
            self.leave(node.then);
            self.sink.content(&gap);
            return true;
        }
        match hit {
            Hit::Edge { edge, .. } => self.cross(node, edge),
            Hit::Special { len, .. } => {
                self.buffer.advance(len);
            }
            Hit::Text { .. } => return false,
        }
        true
    }

    fn waits_for_value(&self) -> bool {
        self.state().state.implicit_value && self.fields.as_ref().is_some_and(Fields::waits)
    }

    /// After a key: text that no marker announces is its value.
    fn step_params(&mut self, last: bool) -> bool {
        let machine = Arc::clone(&self.machine);
        let node = &machine.grammar.nodes[self.node];
        let hit = self.buffer.find(node, &machine.markers[self.node], last);
        let (Hit::Edge { at: to, .. } | Hit::Special { at: to, .. } | Hit::Text { to }) = hit;
        let text = &self.buffer.rest()[..to];
        let space = to - text.trim_start().len();
        if space == to {
            return self.step_text(last);
        }
        self.buffer.advance(space);
        let value = node.edges.iter().find_map(|edge| match edge.target {
            Target::Node(to) if machine.grammar.nodes[to].state.kind == Kind::Value => Some(to),
            _ => None,
        });
        match value {
            Some(value) => self.enter(value),
            None => self.take_text(to - space),
        }
        true
    }

    /// Whether a message head begins here; none while it may.
    fn begins_head(&self, last: bool) -> Option<bool> {
        let openers = &self.state().state.openers;
        let rest = self.buffer.rest();
        let text = rest.trim_start();
        if openers.is_empty()
            || openers
                .iter()
                .any(|opener| text.starts_with(opener.as_str()))
        {
            return Some(true);
        }
        let open =
            !last && rest.len() < MAX_LOOK && openers.iter().any(|opener| opener.starts_with(text));
        (!open).then_some(false)
    }

    /// At the beginning of a message head: text that is none is the answer.
    fn step_head(&mut self, last: bool) -> bool {
        match self.begins_head(last) {
            None => false,
            Some(true) => self.step_text(last),
            Some(false) => {
                self.node = self.machine.grammar.content;
                true
            }
        }
    }

    /// The value is not what the codec reads.
    fn fail(&mut self) {
        let machine = Arc::clone(&self.machine);
        let node = &machine.grammar.nodes[self.node];
        let committed = self.committed;
        let shown = if node.state.bare {
            std::mem::take(&mut self.raw)
        } else {
            std::mem::take(&mut self.inner)
        };
        if let Some(codec) = &mut self.codec {
            codec.finish(&mut self.sink, Finish::Stop);
        }
        self.codec = None;
        self.leave(if node.state.bare {
            Target::Return
        } else {
            node.then
        });
        if committed {
            self.sink.malformed(
                Malformed::Arguments,
                self.buffer.rest().get(..0).unwrap_or(""),
            );
            return;
        }
        self.sink.content(&shown);
        if shown.is_empty()
            && let Some(c) = self.buffer.rest().chars().next()
        {
            // A text that the codec cannot even begin is content, or the marker would lead here for ever.
            let text = self.buffer.advance(c.len_utf8());
            self.sink.content(text);
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
