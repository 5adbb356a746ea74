//! The text that is not yet understood, and the search for markers in it.
//!
//! A marker is found leftmost and longest. Text that may still become one is held back; the search goes on where it
//! stopped, so that the work is linear in the text.

use std::collections::VecDeque;

use octavo_grammar::{Edge, Node};

/// The markers of one state.
#[derive(Debug, Clone)]
pub(crate) struct Markers {
    first: [bool; 256],
    single: Vec<u8>,
}

impl Markers {
    pub(crate) fn new(node: &Node) -> Self {
        let mut first = [false; 256];
        for edge in &node.edges {
            if let Some(byte) = edge.text.bytes().next() {
                first[usize::from(byte)] = true;
            }
        }
        let single: Vec<u8> = (0..=255_u8)
            .filter(|byte| first[usize::from(*byte)])
            .collect();
        Self { first, single }
    }

    fn next(&self, bytes: &[u8]) -> Option<usize> {
        match self.single.as_slice() {
            [] => None,
            [a] => memchr::memchr(*a, bytes),
            [a, b] => memchr::memchr2(*a, *b, bytes),
            [a, b, c] => memchr::memchr3(*a, *b, *c, bytes),
            _ => bytes.iter().position(|byte| self.first[usize::from(*byte)]),
        }
    }
}

/// What a search found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hit {
    /// Text up to here, then the marker of this edge.
    Edge { at: usize, edge: usize },
    /// Text up to here, then a special token that is no marker here.
    Special { at: usize, len: usize },
    /// Text up to here; what follows may become a marker.
    Text { to: usize },
}

/// One special token in the text.
#[derive(Debug, Clone, Copy)]
struct Special {
    at: usize,
    len: usize,
}

/// Text with the places of its special tokens.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    text: String,
    at: usize,
    specials: VecDeque<Special>,
    /// Ends of tokens, for their attribution.
    tokens: VecDeque<usize>,
    /// Comparisons and searches done, in bytes: for the test that work is linear.
    pub(crate) work: u64,
}

impl Buffer {
    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    pub(crate) fn push_special(&mut self, text: &str) {
        if !text.is_empty() {
            self.specials.push_back(Special {
                at: self.text.len(),
                len: text.len(),
            });
        }
        self.text.push_str(text);
    }

    pub(crate) fn end_token(&mut self) {
        self.tokens.push_back(self.text.len());
    }

    /// Return how many tokens end within what has been read, and forget them.
    pub(crate) fn take_tokens(&mut self) -> u32 {
        let mut count = 0;
        while self.tokens.front().is_some_and(|end| *end <= self.at) {
            self.tokens.pop_front();
            count += 1;
        }
        count
    }

    /// Forget what has been read.
    pub(crate) fn compact(&mut self) {
        if self.at == 0 {
            return;
        }
        self.work += (self.specials.len() + self.tokens.len()) as u64;
        self.text.drain(..self.at);
        for special in &mut self.specials {
            special.at = special.at.saturating_sub(self.at);
        }
        for end in &mut self.tokens {
            *end = end.saturating_sub(self.at);
        }
        self.at = 0;
    }

    pub(crate) fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    pub(crate) fn held(&self) -> usize {
        self.text.len() - self.at
    }

    /// Read up to `to` bytes of the rest.
    pub(crate) fn advance(&mut self, count: usize) -> &str {
        let from = self.at;
        self.at += count;
        self.work += count as u64;
        while self
            .specials
            .front()
            .is_some_and(|special| special.at < self.at)
        {
            self.specials.pop_front();
        }
        &self.text[from..self.at]
    }

    /// Search the rest for the first marker. `last` says that no more text will come.
    pub(crate) fn find(&mut self, node: &Node, markers: &Markers, last: bool) -> Hit {
        let mut from = 0;
        loop {
            let rest = &self.text.as_bytes()[self.at..];
            let marker = markers.next(&rest[from..]).map(|at| from + at);
            let special = self
                .specials
                .iter()
                .map(|special| special.at - self.at)
                .find(|at| *at >= from);
            let Some(at) = marker.into_iter().chain(special).min() else {
                self.work += (rest.len() - from) as u64;
                return Hit::Text { to: rest.len() };
            };
            self.work += (at - from) as u64 + 1;
            if let Some(hit) = self.matches(node, at, last) {
                return hit;
            }
            from = at + 1;
        }
    }

    /// What stands at the beginning of the rest. Where markers do not `count`, only special tokens do.
    pub(crate) fn matches_quick(
        &mut self,
        node: &Node,
        markers: &Markers,
        count: bool,
        last: bool,
    ) -> Option<Hit> {
        let byte = *self.text.as_bytes().get(self.at)?;
        let special = self
            .specials
            .front()
            .is_some_and(|special| special.at == self.at);
        let possible = special || (count && markers.first[usize::from(byte)]);
        if !possible {
            return None;
        }
        let hit = self.matches(node, 0, last);
        if !count && matches!(hit, Some(Hit::Text { .. })) {
            return None;
        }
        hit
    }

    /// What stands at this place of the rest, if it is more than text.
    pub(crate) fn matches(&mut self, node: &Node, at: usize, last: bool) -> Option<Hit> {
        let rest = &self.text.as_bytes()[self.at + at..];
        let special = self
            .specials
            .iter()
            .find(|special| special.at >= self.at + at);
        let special = special
            .filter(|special| special.at == self.at + at)
            .copied();
        let mut best: Option<(usize, usize)> = None;
        let mut partial = false;
        for (index, edge) in node.edges.iter().enumerate() {
            if !allowed(edge, special) {
                continue;
            }
            let text = edge.text.as_bytes();
            self.work += 1;
            if rest.starts_with(text) {
                if best.is_none_or(|(len, _)| text.len() > len) {
                    best = Some((text.len(), index));
                }
            } else if text.starts_with(rest) {
                partial = true;
            }
        }
        if partial && !last {
            return Some(Hit::Text { to: at });
        }
        match (best, special) {
            (Some((_, edge)), _) => Some(Hit::Edge { at, edge }),
            (None, Some(special)) => Some(Hit::Special {
                at,
                len: special.len,
            }),
            (None, None) => None,
        }
    }
}

/// Whether the marker may stand where this special token begins, or none does.
fn allowed(edge: &Edge, special: Option<Special>) -> bool {
    !edge.id_only || special.is_some_and(|special| special.len == edge.text.len())
}
