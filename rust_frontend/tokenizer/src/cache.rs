//! A cache of encodings, cut at special tokens.
//!
//! Special tokens split a text before anything else looks at it, so that what stands between two of them is encoded by
//! itself. A long text is cut behind special tokens into chunks of at least [`CHUNK`] bytes, from its start on. A
//! conversation that grows keeps its chunks, and only the new ones are encoded. Chunks that follow each other are linked, so
//! that the beginning of a text that is known is compared and not searched for places to cut.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahash::RandomState;
use aho_corasick::{AhoCorasick, MatchKind};

/// Bytes after which a chunk ends at the next special token.
const CHUNK: usize = 1 << 10;

/// Bytes from which on a whole text is kept.
const WHOLE: usize = 1 << 8;

/// Bytes of text and ids that one generation holds. There are two.
const GENERATION: usize = 24 << 20;

/// Bytes that a chunk takes besides text and ids.
const OVERHEAD: usize = 160;

/// Bytes that a link takes.
const LINK: usize = 64;

/// Bytes of its beginning by which a chunk is found behind another.
const HEAD: usize = 48;

/// The chunk in front of the first.
const NOTHING: u64 = 0;

/// Where texts may be cut, and what their chunks encode to. Shared between threads; its memory is bounded.
pub(crate) struct EncodingCache {
    /// All tokens that split a text, longest first where several begin at one place; `None`: texts are not cut.
    tokens: Option<AhoCorasick>,
    /// Whether a text may be cut behind a token, by its place in the list.
    ends: Vec<bool>,
    /// Whether what follows a token may make another one of it, by its place in the list.
    open: Vec<bool>,
    /// Shorter texts are encoded anew.
    least: usize,
    hashing: RandomState,
    generations: Mutex<Generations>,
}

/// A part of a text, and what it encodes to.
struct Chunk {
    /// Drawn once, from 1 on.
    number: u64,
    text: Arc<str>,
    ids: Box<[u32]>,
}

/// The younger generation takes what is new or used; when it is full, it becomes the older and what was older goes.
#[derive(Default)]
struct Generations {
    young: Generation,
    old: Generation,
    bytes: usize,
    last: u64,
}

#[derive(Default)]
struct Generation {
    by_text: HashMap<Arc<str>, Arc<Chunk>, RandomState>,
    /// By the hash of the number of the chunk before and of its own beginning.
    behind: HashMap<u64, Arc<Chunk>, RandomState>,
}

impl EncodingCache {
    /// Makes a cache for a vocabulary whose texts these tokens split, each with whether it stands for itself and takes
    /// nothing of the text beside it. `None` where there is no place to cut at.
    pub(crate) fn new(tokens: &[(String, bool)]) -> Option<Self> {
        if !tokens.iter().any(|(_, plain)| *plain) {
            return None;
        }
        let texts = || tokens.iter().map(|(token, _)| token);
        let matcher = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(texts());
        Some(Self {
            tokens: Some(matcher.ok()?),
            ends: tokens.iter().map(|(_, plain)| *plain).collect(),
            open: open(texts())?,
            least: 2 * CHUNK,
            hashing: RandomState::new(),
            generations: Mutex::default(),
        })
    }

    /// Makes a cache of whole texts.
    pub(crate) fn of_whole_texts() -> Self {
        Self {
            tokens: None,
            ends: Vec::new(),
            open: Vec::new(),
            least: WHOLE,
            hashing: RandomState::new(),
            generations: Mutex::default(),
        }
    }

    /// Encodes a text chunk by chunk. `encode` is called for chunks that are not known.
    pub(crate) fn encode<E>(
        &self,
        text: &str,
        mut encode: impl FnMut(&str) -> Result<Vec<u32>, E>,
    ) -> Result<Vec<u32>, E> {
        if text.len() < self.least {
            return encode(text);
        }
        let mut ids = Vec::with_capacity(text.len() / 3);
        let (mut before, mut start) = (NOTHING, 0);
        while let Some(known) = self.next(before, &text[start..]) {
            ids.extend_from_slice(&known.ids);
            before = known.number;
            start += known.text.len();
        }
        for (chunk, closed) in self.chunks(&text[start..]) {
            let chunk = &text[start..][chunk];
            let known = match self.get(chunk) {
                Some(known) => known,
                None => self.put(chunk, encode(chunk)?),
            };
            ids.extend_from_slice(&known.ids);
            if closed {
                self.link(before, &known);
            }
            before = known.number;
        }
        Ok(ids)
    }

    /// Cuts a text, and says of each chunk whether it is one of every longer text too that begins with it: not of the last
    /// one, nor where what follows might belong to the token that it ends with.
    fn chunks<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (Range<usize>, bool)> + 'a {
        let mut start = 0;
        let matches = self
            .tokens
            .iter()
            .flat_map(move |tokens| tokens.find_iter(text));
        let cuts = matches
            .filter(|found| self.ends[found.pattern().as_usize()])
            .map(|found| (found.end(), !self.open[found.pattern().as_usize()]))
            .filter(move |(end, _)| {
                let enough = end - start >= CHUNK;
                if enough {
                    start = *end;
                }
                enough
            });
        let mut start = 0;
        cuts.chain([(text.len(), false)])
            .filter_map(move |(end, closed)| {
                let chunk = start..end;
                start = end;
                (!chunk.is_empty()).then_some((chunk, closed))
            })
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.generations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the chunk behind another one is found, if it begins as `rest` does.
    fn place(&self, before: u64, rest: &str) -> u64 {
        let head = &rest.as_bytes()[..rest.len().min(HEAD)];
        self.hashing.hash_one((before, head))
    }

    /// The chunk that is known to follow another one and that `rest` begins with.
    fn next(&self, before: u64, rest: &str) -> Option<Arc<Chunk>> {
        if rest.len() < CHUNK {
            return None;
        }
        let place = self.place(before, rest);
        let known = self.lock().behind(place)?;
        rest.as_bytes()
            .starts_with(known.text.as_bytes())
            .then_some(known)
    }

    fn link(&self, before: u64, chunk: &Arc<Chunk>) {
        let place = self.place(before, &chunk.text);
        self.lock().link(place, Arc::clone(chunk));
    }

    fn get(&self, text: &str) -> Option<Arc<Chunk>> {
        let mut generations = self.lock();
        if let Some(known) = generations.young.by_text.get(text) {
            return Some(Arc::clone(known));
        }
        let known = generations.old.by_text.remove(text)?;
        generations.keep(known, 0)
    }

    fn put(&self, text: &str, ids: Vec<u32>) -> Arc<Chunk> {
        let mut generations = self.lock();
        generations.last += 1;
        let chunk = Arc::new(Chunk {
            number: generations.last,
            text: Arc::from(text),
            ids: ids.into(),
        });
        let kept = generations.keep(Arc::clone(&chunk), 0);
        kept.unwrap_or(chunk)
    }
}

impl Generations {
    /// Takes a chunk into the younger generation; returns the one that is there. `None` for one that is too large.
    fn keep(&mut self, chunk: Arc<Chunk>, more: usize) -> Option<Arc<Chunk>> {
        let size = size(&chunk);
        if size > GENERATION / 2 {
            return None;
        }
        if self.bytes + size + more > GENERATION {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
        let text = Arc::clone(&chunk.text);
        let kept = self.young.by_text.entry(text).or_insert_with(|| {
            self.bytes += size;
            chunk
        });
        Some(Arc::clone(kept))
    }

    /// Links a chunk to the one before it. It is kept in the same generation, so that what is counted is all that is held.
    fn link(&mut self, place: u64, chunk: Arc<Chunk>) {
        let Some(chunk) = self.keep(chunk, LINK) else {
            return;
        };
        if self.young.behind.insert(place, chunk).is_none() {
            self.bytes += LINK;
        }
    }

    fn behind(&mut self, place: u64) -> Option<Arc<Chunk>> {
        if let Some(known) = self.young.behind.get(&place) {
            return Some(Arc::clone(known));
        }
        let known = self.old.behind.remove(&place)?;
        self.link(place, Arc::clone(&known));
        Some(known)
    }
}

fn size(chunk: &Chunk) -> usize {
    chunk.text.len() + size_of_val(&*chunk.ids) + OVERHEAD
}

/// Of each token whether it stands inside of another one that goes on behind it.
fn open<'a>(tokens: impl Iterator<Item = &'a String> + Clone) -> Option<Vec<bool>> {
    let matcher = AhoCorasick::new(tokens.clone()).ok()?;
    let mut open = vec![false; matcher.patterns_len()];
    for token in tokens {
        for found in matcher.find_overlapping_iter(token.as_str()) {
            open[found.pattern().as_usize()] |= found.end() < token.len();
        }
    }
    Some(open)
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
    use proptest::prelude::*;

    fn cache() -> EncodingCache {
        let tokens = [
            ("<end>", true),
            ("<end>>", false),
            ("<pad>", false),
            ("<stop>", true),
        ];
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
        let ranges = |text: &str| cache().chunks(text).collect::<Vec<_>>();
        let turn = format!("{}<stop>", "a".repeat(600));
        assert_eq!(
            ranges(&turn.repeat(5)),
            [(0..1212, true), (1212..2424, true), (2424..3030, false)]
        );
        // What follows may make another token of it.
        let open = format!("{}<end>", "a".repeat(2000));
        assert_eq!(
            ranges(&open.repeat(2)),
            [(0..2005, false), (2005..4010, false)]
        );
        let other = format!("{}<end>>{}<pad>", "a".repeat(2000), "b".repeat(2000));
        assert_eq!(ranges(&other), [(0..other.len(), false)]);
        assert!(ranges("").is_empty());
    }

    #[test]
    fn what_grows_is_encoded_once() {
        for end in ["<end>", "<stop>"] {
            let cache = cache();
            let (mut text, mut calls) = (String::new(), 0);
            for turn in 0..50 {
                text.push_str(&format!("{turn}{}{end}", "x".repeat(1100)));
                let ids = lengths(&cache, &text, &mut calls);
                assert_eq!(ids.iter().sum::<u32>() as usize, text.len());
            }
            // The first text is short and not kept.
            assert!(calls <= 51, "{calls} calls");
        }
    }

    #[test]
    fn whole_texts_are_encoded_once() {
        let cache = EncodingCache::of_whole_texts();
        let (turns, mut calls) = (["a", "b"].map(|turn| turn.repeat(WHOLE)), 0);
        for turn in turns.iter().chain(&turns) {
            assert_eq!(lengths(&cache, turn, &mut calls), [256]);
        }
        assert_eq!(calls, 2);
        lengths(&cache, &turns[0][1..], &mut calls);
        lengths(&cache, &turns[0][1..], &mut calls);
        assert_eq!(calls, 4, "what is short is not kept");
    }

    #[test]
    fn a_known_beginning_is_followed_without_a_search() {
        let cache = cache();
        let text: String = (0..20)
            .map(|turn| format!("{turn}{}<stop>", "x".repeat(1100)))
            .collect();
        lengths(&cache, &text, &mut 0);
        let (mut before, mut at) = (NOTHING, 0);
        while let Some(chunk) = cache.next(before, &text[at..]) {
            (before, at) = (chunk.number, at + chunk.text.len());
        }
        assert_eq!(at, text.len());
    }

    fn texts() -> impl Strategy<Value = Vec<String>> {
        let part = prop_oneof![
            3 => (0..3usize, 900..1300usize).prop_map(|(kind, length)| ["a", "b<", "c"][kind].repeat(length)),
            3 => prop::sample::select(vec!["<end>", "<end>>", "<pad>", "<stop>", ">", "<"]).prop_map(str::to_owned),
        ];
        prop::collection::vec(
            prop::collection::vec(part, 0..10).prop_map(|parts| parts.concat()),
            1..8,
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever was encoded before, and wherever texts part, chunks are those of an empty cache.
        #[test]
        fn links_change_nothing(texts in texts(), joins in prop::collection::vec((0..8usize, 0..8usize), 1..12)) {
            let cache = cache();
            for (one, other) in joins {
                let text = format!("{}{}", texts[one % texts.len()], texts[other % texts.len()]);
                let known = lengths(&cache, &text, &mut 0);
                let fresh = lengths(&self::cache(), &text, &mut 0);
                prop_assert_eq!(known, fresh);
            }
        }
    }

    #[test]
    fn memory_is_bounded() {
        let cache = cache();
        for turn in 0..60 {
            let text = format!("{turn}{}<stop>{turn}", "x".repeat(1 << 20));
            lengths(&cache, &text, &mut 0);
            let generations = cache.lock();
            for generation in [&generations.young, &generations.old] {
                let held: usize = generation.by_text.values().map(|chunk| size(chunk)).sum();
                assert!(held <= GENERATION, "{held} bytes");
                for chunk in generation.behind.values() {
                    let known = generation.by_text.get(&chunk.text);
                    assert!(known.is_some_and(|known| Arc::ptr_eq(known, chunk)));
                }
            }
        }
        let (huge, mut calls) = ("x".repeat(GENERATION), 0);
        lengths(&cache, &huge, &mut calls);
        lengths(&cache, &huge, &mut calls);
        assert_eq!(calls, 2, "what is too large is not kept");
    }
}
