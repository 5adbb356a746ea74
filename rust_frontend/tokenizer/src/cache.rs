//! A cache of encodings, cut at special tokens.
//!
//! Special tokens split a text before anything else looks at it, so that what stands between two of them is encoded by
//! itself. A long text is cut behind special tokens into chunks of at least [`CHUNK`] bytes, from its start on. A
//! conversation that grows keeps its chunks, and only the new ones are encoded.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use aho_corasick::{AhoCorasick, MatchKind};

/// Bytes after which a chunk ends at the next special token.
const CHUNK: usize = 1 << 10;

/// Bytes of text and ids that one generation holds. There are two.
const GENERATION: usize = 24 << 20;

/// Bytes that a chunk takes besides text and ids.
const OVERHEAD: usize = 96;

/// Where texts may be cut, and what their chunks encode to. Shared between threads; its memory is bounded.
pub(crate) struct EncodingCache {
    /// All tokens that split a text, longest first where several begin at one place; `None`: texts are not cut.
    tokens: Option<AhoCorasick>,
    /// Whether a text may be cut behind a token, by its place in the list.
    ends: Vec<bool>,
    generations: Mutex<Generations>,
}

/// The younger generation takes what is new or used; when it is full, it becomes the older and what was older goes.
#[derive(Default)]
struct Generations {
    young: HashMap<Arc<str>, Arc<[u32]>, ahash::RandomState>,
    old: HashMap<Arc<str>, Arc<[u32]>, ahash::RandomState>,
    bytes: usize,
}

impl EncodingCache {
    /// Makes a cache for a vocabulary whose texts these tokens split, each with whether it stands for itself and takes
    /// nothing of the text beside it. `None` where there is no place to cut at.
    pub(crate) fn new(tokens: &[(String, bool)]) -> Option<Self> {
        if !tokens.iter().any(|(_, plain)| *plain) {
            return None;
        }
        let matcher = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|(token, _)| token));
        Some(Self {
            tokens: Some(matcher.ok()?),
            ends: tokens.iter().map(|(_, plain)| *plain).collect(),
            generations: Mutex::default(),
        })
    }

    /// Makes a cache of whole texts.
    pub(crate) fn of_whole_texts() -> Self {
        Self {
            tokens: None,
            ends: Vec::new(),
            generations: Mutex::default(),
        }
    }

    /// Encodes a text chunk by chunk. `encode` is called for chunks that are not known.
    pub(crate) fn encode<E>(
        &self,
        text: &str,
        mut encode: impl FnMut(&str) -> Result<Vec<u32>, E>,
    ) -> Result<Vec<u32>, E> {
        if text.len() < 2 * CHUNK {
            return encode(text);
        }
        let mut ids = Vec::with_capacity(text.len() / 3);
        for chunk in self.chunks(text) {
            let chunk = &text[chunk];
            if let Some(known) = self.get(chunk) {
                ids.extend_from_slice(&known);
                continue;
            }
            let new = encode(chunk)?;
            ids.extend_from_slice(&new);
            self.put(chunk, &new);
        }
        Ok(ids)
    }

    /// Cuts a text. The chunks of a text are those of every longer one that begins with it, but for the last.
    fn chunks<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
        let mut start = 0;
        let matches = self
            .tokens
            .iter()
            .flat_map(move |tokens| tokens.find_iter(text));
        let cuts = matches
            .filter(|found| self.ends[found.pattern().as_usize()])
            .map(|found| found.end())
            .filter(move |end| {
                let enough = end - start >= CHUNK;
                if enough {
                    start = *end;
                }
                enough
            });
        let mut start = 0;
        cuts.chain([text.len()]).filter_map(move |end| {
            let chunk = start..end;
            start = end;
            (!chunk.is_empty()).then_some(chunk)
        })
    }

    fn get(&self, chunk: &str) -> Option<Arc<[u32]>> {
        let mut generations = self
            .generations
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(ids) = generations.young.get(chunk) {
            return Some(Arc::clone(ids));
        }
        let (text, ids) = generations.old.remove_entry(chunk)?;
        generations.put(text, Arc::clone(&ids));
        Some(ids)
    }

    fn put(&self, chunk: &str, ids: &[u32]) {
        if size(chunk, ids) > GENERATION / 2 {
            return;
        }
        let (text, ids) = (Arc::from(chunk), Arc::from(ids));
        self.generations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .put(text, ids);
    }
}

impl Generations {
    fn put(&mut self, text: Arc<str>, ids: Arc<[u32]>) {
        let size = size(text.borrow(), &ids);
        if self.bytes + size > GENERATION {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
        if self.young.insert(text, ids).is_none() {
            self.bytes += size;
        }
    }
}

fn size(text: &str, ids: &[u32]) -> usize {
    text.len() + size_of_val(ids) + OVERHEAD
}

impl std::fmt::Debug for EncodingCache {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("EncodingCache")
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> EncodingCache {
        let tokens = [("<end>", true), ("<end>>", false), ("<pad>", false)];
        EncodingCache::new(&tokens.map(|(token, plain)| (token.to_owned(), plain))).unwrap()
    }

    /// Encodes to lengths, and counts the calls.
    fn lengths(cache: &EncodingCache, text: &str, calls: &mut usize) -> Vec<u32> {
        let encode = |chunk: &str| {
            *calls += 1;
            Ok::<_, ()>(vec![u32::try_from(chunk.len()).unwrap()])
        };
        cache.encode(text, encode).unwrap()
    }

    #[test]
    fn cuts_are_behind_plain_tokens_and_far_enough_apart() {
        let turn = format!("{}<end>", "a".repeat(600));
        let chunks: Vec<_> = cache().chunks(&turn.repeat(5)).collect();
        assert_eq!(chunks, [0..1210, 1210..2420, 2420..3025]);
        let other = format!("{}<end>>{}<pad>", "a".repeat(2000), "b".repeat(2000));
        assert!(cache().chunks(&other).eq(std::iter::once(0..other.len())));
        assert_eq!(cache().chunks("").count(), 0);
    }

    #[test]
    fn what_grows_is_encoded_once() {
        let cache = cache();
        let (mut text, mut calls) = (String::new(), 0);
        for turn in 0..50 {
            text.push_str(&format!("{turn}{}<end>", "x".repeat(1100)));
            let ids = lengths(&cache, &text, &mut calls);
            assert_eq!(ids.iter().sum::<u32>() as usize, text.len());
        }
        // The first text is short and not kept.
        assert!(calls <= 51, "{calls} calls");
    }

    #[test]
    fn memory_is_bounded() {
        let cache = cache();
        for turn in 0..60 {
            let text = format!("{turn}{}<end>", "x".repeat(1 << 20));
            lengths(&cache, &text, &mut 0);
            let generations = cache.generations.lock().unwrap();
            let held: usize = generations
                .young
                .iter()
                .chain(&generations.old)
                .map(|(text, ids)| size(text, ids))
                .sum();
            assert!(held <= 2 * GENERATION, "{held} bytes");
        }
        let (huge, mut calls) = ("x".repeat(GENERATION), 0);
        lengths(&cache, &huge, &mut calls);
        lengths(&cache, &huge, &mut calls);
        assert_eq!(calls, 2, "what is too large is not kept");
    }
}
