//! Joining pairs of tokens, as byte pair encoding defines it: of all neighbours that have a rule those go together whose rule
//! is the earliest, the leftmost first, until none have one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No rule, and no pair of ids.
const NONE: u64 = u64::MAX;

/// Up to so many tokens all neighbours are looked at for each step; beyond, a heap orders them.
const SHORT: usize = 48;

/// No neighbour.
const END: u32 = u32::MAX;

/// The id of a byte that has none: it is left out of a word, as the `tokenizers` crate does it.
pub(crate) const MISSING: u32 = u32::MAX;

/// The rules of a vocabulary: a table with open addressing.
#[derive(Debug)]
pub(crate) struct Merges {
    /// A power of two, half of it free at least.
    slots: Vec<Rule>,
    /// The ids of single bytes; [`MISSING`] where a byte has none.
    bytes: [u32; 256],
}

/// Which two ids go together.
#[derive(Debug, Clone, Copy)]
struct Rule {
    /// Left id, right id.
    pair: u64,
    /// Rank, id of the two together.
    joined: u64,
}

/// Memory that is used again for each word.
#[derive(Debug, Default)]
pub(crate) struct Joining {
    ids: Vec<u32>,
    /// What each id and the next join to.
    joined: Vec<u64>,
}

impl Merges {
    /// Makes the table of rules (left id, right id, rank, id of both); of the same pair the last holds. `bytes` are the
    /// ids that a word begins as, [`MISSING`] for bytes that have none.
    pub(crate) fn new(
        rules: impl ExactSizeIterator<Item = (u32, u32, u32, u32)>,
        bytes: [u32; 256],
    ) -> Self {
        let room = (2 * rules.len()).next_power_of_two().max(2);
        let free = Rule {
            pair: NONE,
            joined: NONE,
        };
        let mut merges = Self {
            slots: vec![free; room],
            bytes,
        };
        for (left, right, rank, id) in rules {
            let pair = packed(left, right);
            let place = merges.probe(pair);
            let joined = packed(rank, id);
            merges.slots[place] = Rule { pair, joined };
        }
        merges
    }

    /// Appends the ids of a word.
    pub(crate) fn encode(&self, word: &[u8], joining: &mut Joining, ids: &mut Vec<u32>) {
        if word.len() > SHORT {
            return self.long(word, ids);
        }
        joining.ids.clear();
        joining.ids.extend(self.single(word));
        self.short(joining);
        ids.extend_from_slice(&joining.ids);
    }

    /// The ids of a word's bytes, of those that have one.
    fn single(&self, word: &[u8]) -> impl Iterator<Item = u32> {
        let ids = word.iter().map(|byte| self.bytes[usize::from(*byte)]);
        ids.filter(|id| *id != MISSING)
    }

    /// Joins by looking at all neighbours for each step.
    fn short(&self, joining: &mut Joining) {
        let Joining { ids, joined } = joining;
        joined.clear();
        joined.extend(ids.windows(2).map(|pair| self.get(pair[0], pair[1])));
        loop {
            let (mut best, mut at) = (NONE, 0);
            for (place, rule) in joined.iter().enumerate() {
                if *rule < best {
                    (best, at) = (*rule, place);
                }
            }
            if best == NONE {
                return;
            }
            ids[at] = best as u32;
            ids.remove(at + 1);
            joined.remove(at);
            if at > 0 {
                joined[at - 1] = self.get(ids[at - 1], ids[at]);
            }
            if at < joined.len() {
                joined[at] = self.get(ids[at], ids[at + 1]);
            }
        }
    }

    /// Joins by a heap: n log n in the number of bytes.
    fn long(&self, word: &[u8], out: &mut Vec<u32>) {
        let mut chain = Chain::new(self, word);
        while let Some(Reverse(open)) = chain.open.pop() {
            let (rank, place) = ((open >> 32) as u32, open as u32);
            // A rule's rank is its own, so that this tells whether the pair still stands here.
            let joined = chain.joined[place as usize];
            if joined != NONE && (joined >> 32) as u32 == rank {
                chain.join(self, place, joined as u32);
            }
        }
        let mut place = if chain.ids.is_empty() { END } else { 0 };
        while place != END {
            out.push(chain.ids[place as usize]);
            place = chain.next[place as usize];
        }
    }

    /// What two ids join to: rank and id, or [`NONE`].
    fn get(&self, left: u32, right: u32) -> u64 {
        self.slots[self.probe(packed(left, right))].joined
    }

    /// The place that holds a pair, or else the free one where it belongs.
    fn probe(&self, pair: u64) -> usize {
        let mask = self.slots.len() - 1;
        let spread = pair.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut place = (spread ^ spread >> 32) as usize & mask;
        while self.slots[place].pair != pair && self.slots[place].pair != NONE {
            place = (place + 1) & mask;
        }
        place
    }
}

fn packed(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// The tokens of a long word, as a list from which they go when they are joined.
struct Chain {
    ids: Vec<u32>,
    /// What each token and the next join to; [`NONE`] too where the token is gone.
    joined: Vec<u64>,
    next: Vec<u32>,
    before: Vec<u32>,
    /// Rank and place of pairs, the earliest rule first. Some do not stand any more.
    open: BinaryHeap<Reverse<u64>>,
}

impl Chain {
    fn new(merges: &Merges, word: &[u8]) -> Self {
        let ids: Vec<u32> = merges.single(word).collect();
        let length = u32::try_from(ids.len()).unwrap_or(END);
        let pairs = ids.windows(2).map(|pair| merges.get(pair[0], pair[1]));
        let joined: Vec<u64> = pairs.chain([NONE]).collect();
        let open: Vec<Reverse<u64>> = (0..length)
            .zip(&joined)
            .filter(|(_, joined)| **joined != NONE)
            .map(|(place, joined)| Reverse(packed((joined >> 32) as u32, place)))
            .collect();
        Self {
            ids,
            joined,
            next: (1..length).chain([END]).collect(),
            before: std::iter::once(END).chain(0..length).collect(),
            open: open.into(),
        }
    }

    /// Joins the token at a place with the next one.
    fn join(&mut self, merges: &Merges, place: u32, id: u32) {
        let at = place as usize;
        let right = self.next[at] as usize;
        let after = self.next[right];
        self.ids[at] = id;
        self.joined[right] = NONE;
        self.next[at] = after;
        self.joined[at] = NONE;
        if after != END {
            self.before[after as usize] = place;
            self.offer(merges, place, after);
        }
        if self.before[at] != END {
            self.offer(merges, self.before[at], place);
        }
    }

    fn offer(&mut self, merges: &Merges, left: u32, right: u32) {
        let joined = merges.get(self.ids[left as usize], self.ids[right as usize]);
        self.joined[left as usize] = joined;
        if joined != NONE {
            let rank = (joined >> 32) as u32;
            self.open.push(Reverse(packed(rank, left)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Rules over the letters a, b and c, by the text that a rule makes; ids of texts count from 256.
    fn merges(texts: &[(&str, &str)]) -> Merges {
        let known: Vec<String> = texts.iter().map(|(a, b)| format!("{a}{b}")).collect();
        let id = |text: &str| match text.as_bytes() {
            [byte] => u32::from(*byte),
            _ => {
                256 + u32::try_from(known.iter().position(|known| known == text).unwrap()).unwrap()
            }
        };
        let rules: Vec<_> = texts
            .iter()
            .zip(0..)
            .map(|((a, b), rank)| (id(a), id(b), rank, id(&format!("{a}{b}"))))
            .collect();
        let mut bytes = [0; 256];
        bytes.iter_mut().zip(0..).for_each(|(id, byte)| *id = byte);
        bytes[usize::from(b'z')] = MISSING;
        Merges::new(rules.into_iter(), bytes)
    }

    const RULES: [(&str, &str); 10] = [
        ("a", "b"),
        ("b", "c"),
        ("a", "a"),
        ("ab", "c"),
        ("a", "bc"),
        ("a", "ab"),
        ("c", "c"),
        ("aab", "cc"),
        ("aa", "aa"),
        ("abc", "abc"),
    ];

    /// The definition: the earliest rule that applies anywhere, at its leftmost place, again and again.
    fn plain(merges: &Merges, word: &[u8]) -> Vec<u32> {
        let known = word.iter().filter(|byte| **byte != b'z');
        let mut ids: Vec<u32> = known.map(|byte| u32::from(*byte)).collect();
        loop {
            let best = (1..ids.len())
                .map(|at| (merges.get(ids[at - 1], ids[at]), at))
                .min()
                .filter(|(joined, _)| *joined != NONE);
            let Some((joined, at)) = best else {
                return ids;
            };
            ids.remove(at);
            ids[at - 1] = joined as u32;
        }
    }

    #[test]
    fn a_long_run_takes_no_square_of_time() {
        let merges = merges(&[("a", "a"), ("aa", "aa"), ("aaaa", "aaaa")]);
        let mut ids = Vec::new();
        merges.encode(&vec![b'a'; 1 << 20], &mut Joining::default(), &mut ids);
        assert_eq!(ids.len(), 1 << 17);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn joins_as_the_definition_says(word in "[abc]{1,60}|[abcz]{1,60}|z{1,60}") {
            let merges = merges(&RULES);
            let wanted = plain(&merges, word.as_bytes());
            let (mut ids, mut long) = (vec![7], Vec::new());
            merges.encode(word.as_bytes(), &mut Joining::default(), &mut ids);
            prop_assert_eq!(&ids[1..], wanted.as_slice());
            merges.long(word.as_bytes(), &mut long);
            prop_assert_eq!(long, wanted);
        }
    }
}
