//! One step of each kind of state: how much of the text is read, and as what.

use std::sync::Arc;

use octavo_grammar::{Kind, Node, Target, TextRule};

use crate::codec::Step;
use crate::event::{Finish, Malformed};
use crate::fields::Fields;
use crate::lexer::Hit;
use crate::machine::Parser;

/// How far white space is looked through for what follows a marker.
const MAX_LOOK: usize = 64;

impl Parser {
    /// Read text up to the next marker, and the marker.
    pub(crate) fn step_text(&mut self, last: bool) -> bool {
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

    /// Read one argument value. Tokens that end in it are nobody's.
    pub(crate) fn step_codec(&mut self, last: bool) -> bool {
        let more = self.read_codec(last);
        self.buffer.take_tokens();
        more
    }

    /// Read one argument value, character by character.
    fn read_codec(&mut self, last: bool) -> bool {
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
    pub(crate) fn step_done(&mut self, last: bool) -> bool {
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

    pub(crate) fn waits_for_value(&self) -> bool {
        self.state().state.implicit_value && self.fields.as_ref().is_some_and(Fields::waits)
    }

    /// After a key: text that no marker announces is its value.
    pub(crate) fn step_params(&mut self, last: bool) -> bool {
        let machine = Arc::clone(&self.machine);
        let node = &machine.grammar.nodes[self.node];
        let hit = self.buffer.find(node, &machine.markers[self.node], last);
        let (Hit::Edge { at: to, .. } | Hit::Special { at: to, .. } | Hit::Text { to }) = hit;
        let text = &self.buffer.rest()[..to];
        let space = to - text.trim_start().len();
        // White space before a value is layout, whether or not its marker is missing.
        self.buffer.advance(space);
        if space == to {
            return !matches!(hit, Hit::Text { .. }) && self.step_text(last);
        }
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
    pub(crate) fn step_head(&mut self, last: bool) -> bool {
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
