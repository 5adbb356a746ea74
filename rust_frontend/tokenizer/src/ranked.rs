//! Byte pair encoding by ranks, as tiktoken defines it: a text is split by a pattern, and in each piece the two
//! neighbours go together whose joined bytes have the lowest rank, the leftmost first, until none have one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};

use crate::kept::Kept;
use crate::splitter::{Scan, Splitter};
use crate::vocabulary::Vocabulary;

/// Up to so many bytes all neighbours are looked at for each step; beyond, a heap orders them.
const SHORT: usize = 48;

/// A vocabulary of byte sequences with ranks, and special tokens.
#[derive(Debug)]
pub(crate) struct RankedBpe {
    ranks: Vocabulary,
    splitter: Splitter,
    scans: Kept<Scan>,
    /// What is added to a rank to give an id.
    first: u32,
    /// Special tokens with their ids.
    special: Vec<(String, u32)>,
    matcher: Option<AhoCorasick>,
}

/// A part of a text: a special token, or text without one.
enum Part {
    Special(u32, Range<usize>),
    Text(Range<usize>),
}

impl RankedBpe {
    /// Makes an encoder of byte sequences with ranks; an id is `first` and the rank. `special` stand for themselves in
    /// texts, if `recognised`.
    ///
    /// # Errors
    /// A pattern that is no regular expression; a byte that no sequence stands for, as texts with it could not be encoded.
    pub(crate) fn new(
        vocabulary: impl IntoIterator<Item = (Vec<u8>, u32)>,
        pattern: &str,
        first: u32,
        special: Vec<(String, u32)>,
        recognised: bool,
    ) -> Result<Self, String> {
        let vocabulary: Vec<(Vec<u8>, u32)> = vocabulary.into_iter().collect();
        let ranks = Vocabulary::new(vocabulary.iter().map(|(bytes, rank)| (&**bytes, *rank)));
        if let Some(byte) = (0..=u8::MAX).find(|byte| ranks.get(&[*byte]).is_none()) {
            return Err(format!("no token stands for the byte {byte}"));
        }
        let matcher = match recognised && !special.is_empty() {
            false => None,
            true => Some(
                AhoCorasick::builder()
                    .match_kind(MatchKind::LeftmostLongest)
                    .build(special.iter().map(|(token, _)| token))
                    .map_err(|error| error.to_string())?,
            ),
        };
        Ok(Self {
            ranks,
            splitter: Splitter::new(pattern)?,
            scans: Kept::new(),
            first,
            special,
            matcher,
        })
    }

    /// Encodes a text. Without `specials`, special tokens that stand in it are text like any other.
    ///
    /// # Errors
    /// The pattern gives up on the text.
    pub(crate) fn encode(&self, text: &str, specials: bool) -> Result<Vec<u32>, String> {
        let mut ids = Vec::with_capacity(text.len() / 3 + 1);
        self.each(text, specials, |id, _| ids.push(id))?;
        Ok(ids)
    }

    /// Calls `give` for each token with its id and its bytes' place in the text.
    pub(crate) fn each(
        &self,
        text: &str,
        specials: bool,
        mut give: impl FnMut(u32, Range<usize>),
    ) -> Result<(), String> {
        let mut scan = self.scans.take(|| self.splitter.scan());
        for part in self.parts(text, specials) {
            let range = match part {
                Part::Special(id, range) => {
                    give(id, range);
                    continue;
                }
                Part::Text(range) => range,
            };
            let (start, part, mut at) = (range.start, &text[range], 0);
            while let Some(piece) = self.splitter.find(&mut scan, part, at)? {
                at = piece.end;
                let place = start + piece.start;
                self.piece(&part.as_bytes()[piece], &mut |id, bytes: Range<usize>| {
                    give(id, place + bytes.start..place + bytes.end);
                });
            }
        }
        self.scans.put(scan);
        Ok(())
    }

    /// The id of a token: a special one, or text that is one token.
    pub(crate) fn token_to_id(&self, token: &str) -> Option<u32> {
        let special = self
            .special
            .iter()
            .find(|(text, _)| text == token)
            .map(|(_, id)| *id);
        special.or_else(|| {
            self.ranks
                .get(token.as_bytes())
                .map(|rank| self.first + rank)
        })
    }

    /// Ids and texts of special tokens.
    pub(crate) fn special_texts(&self) -> Vec<(u32, String)> {
        self.special
            .iter()
            .map(|(token, id)| (*id, token.clone()))
            .collect()
    }

    /// Special tokens that are recognised in texts.
    pub(crate) fn recognised(&self) -> &[(String, u32)] {
        if self.matcher.is_some() {
            &self.special
        } else {
            &[]
        }
    }

    /// The longest byte sequence.
    pub(crate) fn longest(&self) -> usize {
        let special = self.special.iter().map(|(token, _)| token.len());
        special.chain([self.ranks.longest()]).max().unwrap_or(1)
    }

    fn parts(&self, text: &str, specials: bool) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut done = 0;
        if let Some(matcher) = self.matcher.as_ref().filter(|_| specials) {
            for found in matcher.find_iter(text) {
                if found.start() > done {
                    parts.push(Part::Text(done..found.start()));
                }
                parts.push(Part::Special(
                    self.special[found.pattern().as_usize()].1,
                    found.range(),
                ));
                done = found.end();
            }
        }
        if done < text.len() {
            parts.push(Part::Text(done..text.len()));
        }
        parts
    }

    /// Encodes one piece.
    fn piece(&self, bytes: &[u8], give: &mut impl FnMut(u32, Range<usize>)) {
        if let Some(rank) = self.ranks.get(bytes) {
            return give(self.first + rank, 0..bytes.len());
        }
        let mut give = |part: Range<usize>| {
            // Every byte has a rank, and joined ones were found by theirs.
            let rank = self.ranks.get(&bytes[part.clone()]).unwrap_or_default();
            give(self.first + rank, part);
        };
        if bytes.len() <= SHORT {
            return self.short(bytes, &mut give);
        }
        let mut merge = Merge::new(self, bytes);
        while merge.step() {}
        let mut start = 0;
        while start < bytes.len() {
            let end = merge.ends[start];
            give(start..end);
            start = end;
        }
    }

    /// Joins the bytes of a short piece by looking at all neighbours for each step.
    fn short(&self, bytes: &[u8], give: &mut impl FnMut(Range<usize>)) {
        let rank = |part: Range<usize>| self.ranks.get(&bytes[part]).unwrap_or(u32::MAX);
        // Where parts begin, and the end; what each and the next have for a rank.
        let mut places: Vec<usize> = (0..=bytes.len()).collect();
        let pairs = places.windows(3);
        let mut ranks: Vec<u32> = pairs.map(|pair| rank(pair[0]..pair[2])).collect();
        loop {
            let (mut best, mut at) = (u32::MAX, 0);
            for (place, rank) in ranks.iter().enumerate() {
                if *rank < best {
                    (best, at) = (*rank, place);
                }
            }
            if best == u32::MAX {
                break;
            }
            places.remove(at + 1);
            ranks.remove(at);
            if at > 0 {
                ranks[at - 1] = rank(places[at - 1]..places[at + 1]);
            }
            if at < ranks.len() {
                ranks[at] = rank(places[at]..places[at + 2]);
            }
        }
        for part in places.windows(2) {
            give(part[0]..part[1]);
        }
    }
}

/// The state of joining the bytes of one piece; n log n in their number.
struct Merge<'a> {
    bpe: &'a RankedBpe,
    bytes: &'a [u8],
    /// Where the part that begins at a byte ends; meaningless inside a part.
    ends: Vec<usize>,
    /// Where the part that ends at a byte begins.
    starts: Vec<usize>,
    /// Neighbours that may join: (rank, start, middle, end), the lowest first.
    open: BinaryHeap<Reverse<(u32, usize, usize, usize)>>,
}

impl<'a> Merge<'a> {
    fn new(bpe: &'a RankedBpe, bytes: &'a [u8]) -> Self {
        let mut merge = Self {
            bpe,
            bytes,
            ends: (1..=bytes.len()).collect(),
            starts: std::iter::once(0).chain(0..bytes.len()).collect(),
            open: BinaryHeap::with_capacity(bytes.len()),
        };
        for start in 0..bytes.len().saturating_sub(1) {
            merge.offer(start, start + 1, start + 2);
        }
        merge
    }

    fn offer(&mut self, start: usize, middle: usize, end: usize) {
        if let Some(rank) = self.bpe.ranks.get(&self.bytes[start..end]) {
            self.open.push(Reverse((rank, start, middle, end)));
        }
    }

    /// Joins one pair; false when none is left.
    fn step(&mut self) -> bool {
        let Some(Reverse((_, start, middle, end))) = self.open.pop() else {
            return false;
        };
        // One of the two has joined another neighbour since, or is no part any more.
        let current = self.ends[start] == middle
            && self.starts[middle] == start
            && self.ends[middle] == end
            && self.starts[end] == middle;
        if current {
            self.ends[start] = end;
            self.starts[end] = start;
            // Nothing begins or ends in the middle now.
            self.ends[middle] = usize::MAX;
            self.starts[middle] = usize::MAX;
            if start > 0 {
                self.offer(self.starts[start], start, end);
            }
            if end < self.bytes.len() {
                self.offer(start, end, self.ends[end]);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All bytes, then these sequences.
    fn bpe(more: &[&str]) -> RankedBpe {
        let bytes = (0..=u8::MAX).map(|byte| (vec![byte], u32::from(byte)));
        let more = more
            .iter()
            .zip(256..)
            .map(|(text, rank)| (text.as_bytes().to_vec(), rank));
        RankedBpe::new(
            bytes.chain(more),
            r"\w+|\W+",
            10,
            vec![("<s>".to_owned(), 0)],
            true,
        )
        .unwrap()
    }

    /// The definition, by scanning all neighbours each time.
    fn plain(bpe: &RankedBpe, piece: &[u8]) -> Vec<u32> {
        let mut parts: Vec<&[u8]> = piece.chunks(1).collect();
        let mut start = 0;
        let mut places: Vec<usize> = (0..=piece.len()).collect();
        loop {
            let best = (0..places.len().saturating_sub(2))
                .filter_map(|at| Some((bpe.ranks.get(&piece[places[at]..places[at + 2]])?, at)))
                .min();
            match best {
                Some((_, at)) => drop(places.remove(at + 1)),
                None => break,
            }
        }
        parts.clear();
        places.remove(0);
        let mut ids = Vec::new();
        for end in places {
            ids.push(bpe.first + bpe.ranks.get(&piece[start..end]).unwrap());
            start = end;
        }
        ids
    }

    #[test]
    fn special_tokens_are_tokens_or_text() {
        let bpe = bpe(&["ab"]);
        assert_eq!(bpe.encode("ab<s>a", true).unwrap(), [266, 0, 107]);
        assert_eq!(bpe.encode("<s>", false).unwrap(), [70, 125, 72]);
        assert_eq!(bpe.encode("", true).unwrap(), [0_u32; 0]);
    }

    #[test]
    fn a_long_run_takes_no_square_of_time() {
        let bpe = bpe(&["aa", "aaaa", "aaaaaaaa"]);
        let text = "a".repeat(1 << 20);
        assert_eq!(bpe.encode(&text, true).unwrap().len(), 1 << 17);
    }

    #[test]
    fn a_byte_without_a_token_is_refused() {
        let error = RankedBpe::new([(vec![0], 0)], "x", 0, Vec::new(), true).unwrap_err();
        assert!(error.contains("byte 1"), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn joins_as_the_definition_says(text in "[abc]{1,70}") {
            let bpe = bpe(&["ab", "bc", "aa", "aab", "abab", "ca", "bca", "aaa", "cc", "bcca"]);
            let mut ids = Vec::new();
            bpe.piece(text.as_bytes(), &mut |id, _| ids.push(id));
            if bpe.ranks.get(text.as_bytes()).is_none() {
                prop_assert_eq!(ids, plain(&bpe, text.as_bytes()));
            }
        }
    }
}
