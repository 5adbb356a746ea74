//! Leaving one state for another: what a marker ends, and what it begins.

use std::sync::Arc;

use octavo_grammar::{AfterCall, Kind, NamePattern, Node, Target, TextRule};

use crate::codec::Codec;
use crate::event::{Finish, Malformed};
use crate::fields::Fields;
use crate::head::{self, Head};
use crate::machine::{Parser, begins, is_text, keys_apart};

impl Parser {
    /// Take a marker and go where it leads.
    pub(crate) fn cross(&mut self, node: &Node, edge: usize) {
        let edge = &node.edges[edge];
        let text = if edge.keep {
            ""
        } else {
            self.buffer.advance(edge.text.len())
        }
        .to_owned();
        self.buffer.take_tokens();
        if node.state.kind.is_inside_call() && !self.committed {
            self.raw.push_str(&text);
        }
        let machine = Arc::clone(&self.machine);
        let to = match edge.target {
            Target::Route => return self.follow_route(node),
            Target::Return => self.returns(),
            Target::Node(to) => to,
        };
        let next = &machine.grammar.nodes[to];
        if !self.end_state(node, next) {
            return;
        }
        let inside = node.state.kind.is_inside_call();
        if inside
            && (!next.state.kind.is_inside_call() || (begins(next) && !self.is_nameless(node)))
        {
            self.close_call();
        }
        if next.state.kind.is_call() && !node.state.kind.is_call() {
            self.back = if node.state.kind == Kind::Reasoning {
                self.node
            } else {
                machine.grammar.content
            };
        }
        if begins(next) && !(inside && self.is_nameless(node)) {
            self.begin_call(&text);
        }
        self.enter(to);
    }

    /// Whether this is a name state in which no name has been read.
    fn is_nameless(&self, node: &Node) -> bool {
        node.state.kind == Kind::Name && self.text.trim().is_empty()
    }

    /// Where a section of calls leads back to.
    pub(crate) fn returns(&self) -> usize {
        match self.machine.grammar.after_call {
            AfterCall::ResumePrevious => self.back,
            AfterCall::Content => self.machine.grammar.content,
        }
    }

    /// End the state that is left; false where its text was given back and there is nowhere to go.
    fn end_state(&mut self, node: &Node, next: &Node) -> bool {
        match node.state.kind {
            Kind::Reasoning if next.state.kind != Kind::Reasoning => self.sink.end_reasoning(),
            Kind::Name if !(begins(next) && self.is_nameless(node)) => {
                let head = head::read(
                    &node.state,
                    &self.text,
                    self.machine.grammar.arguments.entities,
                );
                return self.open_call(&head);
            }
            Kind::Key => {
                let head = head::read(
                    &node.state,
                    &self.text,
                    self.machine.grammar.arguments.entities,
                );
                let kept = next.state.kind == Kind::Value
                    || (next.state.kind == Kind::Params && keys_apart(next));
                if !kept || head.name.is_none() {
                    self.sink.malformed(Malformed::Parameter, &self.text);
                }
                if let Some(fields) = self.fields.as_mut().filter(|_| kept) {
                    fields.key(head.name.as_deref().unwrap_or(""), head.is_text);
                }
            }
            Kind::Value => {
                if let Some(fields) = &mut self.fields {
                    fields.end(&mut self.sink, node.state.trim);
                }
            }
            Kind::Header => self.end_head(node),
            Kind::Args => {
                if let Some(codec) = &mut self.codec {
                    codec.finish(&mut self.sink, Finish::Stop);
                    if !codec.committed() {
                        let inner = std::mem::take(&mut self.inner);
                        self.sink.content(inner.trim());
                    }
                }
                self.codec = None;
            }
            _ => {}
        }
        true
    }

    fn begin_call(&mut self, marker: &str) {
        self.raw.clear();
        self.raw.push_str(marker);
        self.inner.clear();
        self.committed = false;
        self.fields = None;
        self.codec = None;
        self.call.clear();
    }

    /// Open the call under its name; false where all of it became text.
    fn open_call(&mut self, head: &Head) -> bool {
        let Some(name) = &head.name else {
            self.sink.malformed(Malformed::Name, &self.text);
            self.sink.hide();
            self.committed = true;
            return true;
        };
        self.call.clone_from(name);
        self.committed = true;
        if is_text(self.sink.open(name, head.id.as_deref())) {
            let raw = std::mem::take(&mut self.raw);
            self.sink.content(&raw);
            self.node = self.machine.grammar.content;
            self.text.clear();
            return false;
        }
        true
    }

    /// The call ends, as its format ends it.
    pub(crate) fn close_call(&mut self) {
        if let Some(mut fields) = self.fields.take() {
            fields.close(&mut self.sink, true, octavo_grammar::Trim::None);
        }
        self.codec = None;
        self.sink.close();
    }

    /// Leave a complete value without a marker.
    pub(crate) fn leave(&mut self, then: Target) {
        self.close_call();
        let to = match then {
            Target::Node(to) => to,
            Target::Return | Target::Route => self.returns(),
        };
        self.enter(to);
    }

    /// Begin a state.
    pub(crate) fn enter(&mut self, to: usize) {
        let machine = Arc::clone(&self.machine);
        let node = &machine.grammar.nodes[to];
        self.text.clear();
        self.node = to;
        let parameters = self.sink.tools.parameters(&self.call).cloned();
        match node.state.kind {
            Kind::Between if node.state.text == TextRule::Content => self.sink.pause(),
            Kind::Args => {
                // The arguments are one value: what stood in markers before it was none of them.
                self.fields = None;
                self.codec = Some(Codec::new(&node.state, parameters));
            }
            Kind::Params if self.fields.is_none() => {
                self.fields = Some(Fields::new(machine.grammar.arguments.clone(), parameters));
            }
            Kind::Key if self.fields.is_none() => {
                self.fields = Some(Fields::new(machine.grammar.arguments.clone(), parameters));
            }
            Kind::Value => {
                if let Some(fields) = &mut self.fields {
                    fields.begin(&mut self.sink);
                }
            }
            _ => {}
        }
    }

    /// Go where the message head leads.
    fn follow_route(&mut self, node: &Node) {
        let route = head::route(node, &self.text);
        let to = match route.index.and_then(|index| node.routes.get(index)) {
            Some(Target::Node(to)) => *to,
            _ => self.machine.grammar.content,
        };
        let machine = Arc::clone(&self.machine);
        let next = &machine.grammar.nodes[to];
        if next.state.kind == Kind::Args && !begins(next) {
            self.begin_call("");
            self.back = machine.grammar.content;
            self.call = route.name.clone().unwrap_or_default();
            let head = Head {
                name: route.name,
                ..Head::default()
            };
            if !self.open_call(&head) {
                return;
            }
        } else if next.state.kind.is_call() {
            self.back = machine.grammar.content;
        }
        self.enter(to);
    }

    /// A message head ends without a body: what stands behind its channel is the body after all.
    fn end_head(&mut self, node: &Node) {
        let route = head::route(node, &self.text);
        let to = route.index.and_then(|index| node.routes.get(index));
        let thought =
            matches!(to, Some(Target::Node(to)) if Some(*to) == self.machine.grammar.reasoning);
        if route.body.is_empty() {
            if route.is_head
                || !node
                    .state
                    .openers
                    .iter()
                    .any(|opener| opener == self.text.trim())
            {
                self.sink.malformed(Malformed::Header, &self.text);
            }
        } else if thought {
            self.sink.reasoning(&route.body, octavo_grammar::Trim::None);
            self.sink.end_reasoning();
        } else {
            self.sink.content(&route.body);
        }
    }

    /// The text has ended: nothing more comes.
    pub(crate) fn end(&mut self, finish: Finish) {
        let machine = Arc::clone(&self.machine);
        let node = &machine.grammar.nodes[self.node];
        let whole = finish == Finish::Stop;
        match node.state.kind {
            // What the model itself ended was meant; what a limit cut was on its way to be a call.
            Kind::Name if whole && node.state.pattern == NamePattern::Any => {
                self.sink.content(self.text.trim())
            }
            Kind::Name => self.sink.malformed(Malformed::Cut, &self.text),
            Kind::Args => self.end_args(node, finish),
            Kind::Params | Kind::Key | Kind::Value => {
                if node.state.kind == Kind::Key {
                    self.sink.malformed(Malformed::Cut, &self.text);
                }
                if let Some(fields) = &mut self.fields {
                    fields.close(&mut self.sink, whole, node.state.trim);
                }
                self.sink.close_cut(whole);
            }
            Kind::Header => self.end_head(node),
            _ => {}
        }
        self.sink.finish();
        self.sink.end(finish);
    }

    fn end_args(&mut self, node: &Node, finish: Finish) {
        if let Some(codec) = &mut self.codec {
            if codec.committed() {
                codec.finish(&mut self.sink, finish);
            } else if node.state.bare {
                self.sink.content(&self.raw);
            } else if finish == Finish::Stop {
                self.sink.content(self.inner.trim());
            } else {
                self.sink.malformed(Malformed::Cut, &self.inner);
            }
        }
        self.sink.close_cut(finish == Finish::Stop);
    }
}
