//! A tool format and a reasoning format joined into the table that the parser runs.

use std::collections::BTreeMap;

use crate::format::{AfterCall, Arguments, ChoiceNone, Format, IdPolicy, UnknownTool};
use crate::state::{Kind, Policy, State};

/// What calls are in this request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// Calls.
    Parse,
    /// Read as calls, and not shown (`tool_choice: none` of some formats).
    Drop,
    /// Text like any other (no tools, or `tool_choice: none`).
    Text,
}

/// Where an edge leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The node with this index.
    Node(usize),
    /// Where the call began, as `after_call` says.
    Return,
    /// Where the header's routes lead.
    Route,
}

/// One marker of a node.
#[derive(Debug, Clone)]
pub struct Edge {
    /// The marker's text.
    pub text: String,
    /// Whether only the token matches.
    pub id_only: bool,
    /// Where it leads.
    pub target: Target,
    /// Whether its text is read again there.
    pub keep: bool,
}

/// One state, with its edges resolved.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its name, for logs.
    pub name: String,
    /// As declared.
    pub state: State,
    /// Its markers.
    pub edges: Vec<Edge>,
    /// Where a complete value leads.
    pub then: Target,
    /// Where the routes lead, in their order.
    pub routes: Vec<Target>,
    /// Texts of `close_followed_by`.
    pub followers: Vec<String>,
}

/// What the parser runs.
#[derive(Debug, Clone)]
pub struct Grammar {
    /// All states.
    pub nodes: Vec<Node>,
    /// The state of plain answers.
    pub content: usize,
    /// The state of thoughts.
    pub reasoning: Option<usize>,
    /// The state of the first character where nothing else is known.
    pub start: usize,
    /// After a call inside of thoughts.
    pub after_call: AfterCall,
    /// Calls of unknown tools.
    pub unknown_tool: UnknownTool,
    /// Calls under `tool_choice: none`.
    pub choice_none: ChoiceNone,
    /// Ids of calls.
    pub ids: IdPolicy,
    /// How arguments become JSON.
    pub arguments: Arguments,
    /// Text shown first.
    pub preface: String,
    /// Whether calls are read and not shown.
    pub drop_calls: bool,
    /// Texts that begin the model's turn.
    pub turns: Vec<String>,
    /// Whether turning thinking off makes markers of thoughts text.
    pub off_is_text: bool,
}

/// Nodes by key, in the making.
#[derive(Default)]
struct Making {
    nodes: Vec<Node>,
    index: BTreeMap<String, usize>,
}

impl Making {
    /// Collect the states of formats; a later format decides on states that both have.
    fn of<'a>(formats: impl Iterator<Item = &'a Format>) -> Self {
        let mut making = Self::default();
        making.add("content", &State::default());
        for format in formats {
            for (name, state) in &format.states {
                let at = making.add(&key_of(format, name), state);
                let mut merged = state.clone();
                if state.trim == crate::state::Trim::None {
                    merged.trim = making.nodes[at].state.trim;
                }
                making.nodes[at].state = merged;
            }
        }
        making
    }

    fn add(&mut self, key: &str, state: &State) -> usize {
        if let Some(at) = self.index.get(key) {
            return *at;
        }
        let at = self.nodes.len();
        self.nodes.push(Node {
            name: key.to_owned(),
            state: state.clone(),
            edges: Vec::new(),
            then: Target::Node(0),
            routes: Vec::new(),
            followers: Vec::new(),
        });
        self.index.insert(key.to_owned(), at);
        at
    }
}

fn key_of(format: &Format, name: &str) -> String {
    match name {
        "content" | "reasoning" => name.to_owned(),
        other => format!("{}.{other}", format.name),
    }
}

impl Grammar {
    /// Join a tool format and a reasoning format, or one that is both.
    ///
    /// Where both mark the same text, the tool format decides. `thinking` is false where the request turns it off.
    pub fn compose(
        tool: Option<&Format>,
        reasoning: Option<&Format>,
        calls: Calls,
        thinking: bool,
    ) -> Self {
        let same = matches!((tool, reasoning), (Some(a), Some(b)) if a.name == b.name);
        let reasoning = reasoning.filter(|_| !same);
        // Without a reasoning parser nobody has said that the prompt opens thoughts.
        let alone = reasoning.is_none() && !same;
        let off = !thinking
            && tool
                .into_iter()
                .chain(reasoning)
                .any(|format| format.off_is_text);
        let mut making = Making::of(reasoning.into_iter().chain(tool));
        for format in reasoning.into_iter().chain(tool) {
            let parse = calls != Calls::Text && tool.is_some_and(|tool| tool.name == format.name);
            link(&mut making, format, parse, off);
        }
        if let Some(tool) = tool.filter(|tool| calls != Calls::Text && tool.interrupts_reasoning) {
            interrupt(&mut making, tool);
        }
        let first = reasoning.or(tool);
        let rules = tool.or(reasoning);
        let start = first
            .and_then(|format| making.index.get(&key_of(format, &format.start)))
            .copied()
            .unwrap_or(0);
        Self {
            content: 0,
            reasoning: making.index.get("reasoning").copied().filter(|_| !off),
            start: if off || (alone && making.nodes[start].state.kind == Kind::Reasoning) {
                0
            } else {
                start
            },
            after_call: rules.map_or(AfterCall::Content, |format| format.after_call),
            unknown_tool: rules.map_or(UnknownTool::Pass, |format| format.unknown_tool),
            choice_none: rules.map_or(ChoiceNone::Text, |format| format.choice_none),
            ids: rules.map_or(IdPolicy::Random24, |format| format.ids),
            arguments: rules
                .map(|format| format.arguments.clone())
                .unwrap_or_default(),
            preface: first
                .map(|format| format.preface.clone())
                .unwrap_or_default(),
            drop_calls: calls == Calls::Drop,
            turns: first.map(|format| format.turns.clone()).unwrap_or_default(),
            off_is_text: off,
            nodes: making.nodes,
        }
    }

    /// The state after a prompt that leaves nothing open: a head where messages have heads, else the answer.
    pub fn unopened(&self) -> usize {
        if self.nodes[self.start].state.kind == Kind::Header {
            self.start
        } else {
            self.content
        }
    }

    /// Return the state that the end of a prompt leaves open, if it says.
    ///
    /// Only the text after the last turn marker counts, so that examples in a system prompt mean nothing. The marker
    /// that stands last decides.
    pub fn start_after(&self, tail: &str) -> Option<usize> {
        let cut = self
            .turns
            .iter()
            .filter_map(|turn| tail.rfind(turn).map(|at| at + turn.len()))
            .max();
        let turn = &tail[cut.unwrap_or(0)..];
        let outer = self
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| !node.state.kind.is_call());
        let mut best: Option<(usize, usize, usize)> = None;
        for (_, node) in outer {
            for edge in node.edges.iter().filter(|edge| !edge.keep) {
                let Target::Node(to) = edge.target else {
                    continue;
                };
                if self.nodes[to].state.kind.is_call() {
                    continue;
                }
                if let Some(at) = turn.rfind(edge.text.trim_end()) {
                    let found = (at + edge.text.trim_end().len(), edge.text.len(), to);
                    best = Some(best.map_or(found, |best| {
                        if (found.0, found.1) > (best.0, best.1) {
                            found
                        } else {
                            best
                        }
                    }));
                }
            }
        }
        best.map(|(_, _, to)| to)
    }
}

fn resolve(making: &Making, format: &Format, name: &str) -> Target {
    match name {
        "return" => Target::Return,
        "route" => Target::Route,
        other => Target::Node(
            making
                .index
                .get(&key_of(format, other))
                .copied()
                .unwrap_or(0),
        ),
    }
}

/// Add the edges of a format. Without `parse`, what leads into calls is text; with `off`, so is what leads to thoughts.
fn link(making: &mut Making, format: &Format, parse: bool, off: bool) {
    for (name, state) in &format.states {
        let at = making
            .index
            .get(&key_of(format, name))
            .copied()
            .unwrap_or(0);
        let mut edges = Vec::new();
        for (marker, to) in &state.on {
            let (target, mut keep) = to.parts();
            let mut target = resolve(making, format, target);
            let leads = |kind: fn(Kind) -> bool| matches!(target, Target::Node(to) if kind(making.nodes[to].state.kind));
            if off
                && !state.kind.is_call()
                && (leads(|kind| kind == Kind::Reasoning) || target == Target::Node(0))
            {
                continue;
            }
            if !parse
                && state.kind == Kind::Content
                && target == Target::Node(0)
                && closes_calls(format, marker)
            {
                continue;
            }
            if !parse && leads(Kind::is_call) {
                if state.kind != Kind::Reasoning {
                    continue;
                }
                (target, keep) = (Target::Node(0), true);
            }
            if let Some(marker) = format.markers.get(marker) {
                let (texts, policy) = marker.texts();
                let id_only = policy == Policy::IdOnly;
                edges.extend(texts.iter().map(|text| Edge {
                    text: text.clone(),
                    id_only,
                    target,
                    keep,
                }));
            }
        }
        merge(&mut making.nodes[at].edges, edges);
        complete(making, format, at, state);
    }
}

/// Resolve what a state names beside its markers.
fn complete(making: &mut Making, format: &Format, at: usize, state: &State) {
    let followers = state
        .close_followed_by
        .iter()
        .filter_map(|name| format.markers.get(name));
    let followers = followers
        .flat_map(|marker| marker.texts().0.iter().cloned())
        .collect();
    let then = state
        .then
        .as_ref()
        .map_or(Target::Return, |then| resolve(making, format, then));
    let routes = state
        .routes
        .iter()
        .map(|route| resolve(making, format, &route.to))
        .collect();
    let node = &mut making.nodes[at];
    node.then = then;
    node.routes = routes;
    node.followers = followers;
}

/// Whether only calls use the marker: where calls are text, so is it.
fn closes_calls(format: &Format, marker: &str) -> bool {
    let users = || {
        format
            .states
            .values()
            .filter(|state| state.on.contains_key(marker))
    };
    users().any(|state| state.kind.is_call())
        && users().all(|state| state.kind.is_call() || state.kind == Kind::Content)
}

/// A call that begins inside of thoughts ends them.
fn interrupt(making: &mut Making, tool: &Format) {
    let Some(reasoning) = making.index.get("reasoning").copied() else {
        return;
    };
    if tool
        .states
        .get("reasoning")
        .is_some_and(|state| !state.on.is_empty())
    {
        return;
    }
    let calls: Vec<Edge> = making.nodes[0]
        .edges
        .iter()
        .filter(|edge| {
            !edge.keep
                && matches!(edge.target, Target::Node(to) if making.nodes[to].state.kind.is_call())
        })
        .cloned()
        .collect();
    merge(&mut making.nodes[reasoning].edges, calls);
}

fn merge(edges: &mut Vec<Edge>, new: Vec<Edge>) {
    edges.retain(|edge| new.iter().all(|other| other.text != edge.text));
    edges.extend(new);
}
