//! Byte sequences to ids: a table with open addressing, made once and read by all threads.

use std::hint::black_box;

/// An odd number whose bits are spread evenly: the golden ratio's.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The ids of a vocabulary by the bytes that they stand for.
pub(crate) struct Vocabulary {
    /// A power of two, half of it free at least.
    slots: Vec<Slot>,
    /// All sequences, one behind the other.
    bytes: Vec<u8>,
    longest: usize,
    entries: usize,
}

/// A place for one sequence. Those of no bytes are free.
#[derive(Clone, Copy, Default)]
struct Slot {
    hash: u32,
    start: u32,
    length: u32,
    id: u32,
}

impl Vocabulary {
    /// Makes a table of sequences; of the same sequence the last id holds. Empty ones are left out.
    pub(crate) fn new<'a>(entries: impl ExactSizeIterator<Item = (&'a [u8], u32)>) -> Self {
        let room = (2 * entries.len()).next_power_of_two().max(2);
        let mut vocabulary = Self {
            slots: vec![Slot::default(); room],
            bytes: Vec::with_capacity(8 * entries.len()),
            longest: 0,
            entries: 0,
        };
        for (bytes, id) in entries.filter(|(bytes, _)| !bytes.is_empty()) {
            vocabulary.insert(bytes, id);
        }
        vocabulary
    }

    /// The id of a sequence.
    pub(crate) fn get(&self, bytes: &[u8]) -> Option<u32> {
        self.place(bytes).map(|place| self.slots[place].id)
    }

    /// Where a sequence stands in the table: a number below [`Self::places`].
    pub(crate) fn place(&self, bytes: &[u8]) -> Option<usize> {
        if bytes.len() > self.longest {
            return None;
        }
        let place = self.probe(hash(bytes), bytes);
        (self.slots[place].length != 0).then_some(place)
    }

    /// The id at a place.
    pub(crate) fn id(&self, place: usize) -> u32 {
        self.slots[place].id
    }

    /// The place where the search for a sequence begins, read so that its line is on the way while others are read.
    #[inline]
    pub(crate) fn approach(&self, bytes: &[u8]) -> usize {
        let place = hash(bytes) as usize & (self.slots.len() - 1);
        black_box(self.slots[place].hash);
        place
    }

    /// Reads the sequence that stands at a place, as [`Self::approach`] reads the place.
    #[inline]
    pub(crate) fn approach_sequence(&self, place: usize) {
        black_box(self.bytes.get(self.slots[place].start as usize));
    }

    /// How many places there are.
    pub(crate) fn places(&self) -> usize {
        self.slots.len()
    }

    /// The length of the longest sequence.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// The place that holds a sequence, or else the free one where it belongs.
    fn probe(&self, hash: u64, bytes: &[u8]) -> usize {
        let (tag, mask) = (tag(hash), self.slots.len() - 1);
        let mut place = hash as usize & mask;
        loop {
            let slot = self.slots[place];
            let found = slot.hash == tag && self.sequence(slot) == bytes;
            if slot.length == 0 || found {
                return place;
            }
            place = (place + 1) & mask;
        }
    }

    fn sequence(&self, slot: Slot) -> &[u8] {
        &self.bytes[slot.start as usize..][..slot.length as usize]
    }

    fn insert(&mut self, bytes: &[u8], id: u32) {
        let hash = hash(bytes);
        let place = self.probe(hash, bytes);
        if self.slots[place].length != 0 {
            self.slots[place].id = id;
            return;
        }
        self.slots[place] = Slot {
            hash: tag(hash),
            start: u32::try_from(self.bytes.len()).unwrap_or(u32::MAX),
            length: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            id,
        };
        self.bytes.extend_from_slice(bytes);
        self.longest = self.longest.max(bytes.len());
        self.entries += 1;
    }
}

/// Bits that the place does not come from.
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// Both halves of a product, which all bits of a number have a part in.
fn fold(number: u64) -> u64 {
    let product = u128::from(number) * u128::from(SPREAD);
    product as u64 ^ (product >> 64) as u64
}

/// A hash of bytes that come from no adversary: a vocabulary's. Texts are only looked up.
fn hash(bytes: &[u8]) -> u64 {
    let length = (bytes.len() as u64) << 56 | 0xA5;
    if let Some(last) = bytes.last_chunk::<8>() {
        let (words, _) = bytes.as_chunks::<8>();
        let state = words.iter().fold(length, |state, word| {
            fold(state ^ u64::from_le_bytes(*word))
        });
        return fold(state.rotate_left(23) ^ u64::from_le_bytes(*last));
    }
    let word = match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last))
        }
        _ => bytes
            .iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    fold(length ^ word)
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Vocabulary")
            .field("entries", &self.entries)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn table(entries: &[(Vec<u8>, u32)]) -> Vocabulary {
        Vocabulary::new(entries.iter().map(|(bytes, id)| (bytes.as_slice(), *id)))
    }

    #[test]
    fn an_empty_vocabulary_holds_nothing() {
        assert_eq!(table(&[]).get(b"a"), None);
        assert_eq!(table(&[(Vec::new(), 1)]).get(b""), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn gives_what_a_map_gives(
            entries in prop::collection::vec((prop::collection::vec(0u8..4, 0..20), 0u32..1000), 0..200),
            others in prop::collection::vec(prop::collection::vec(0u8..4, 0..20), 0..50),
        ) {
            let vocabulary = table(&entries);
            let map: HashMap<&[u8], u32> = entries.iter().filter(|(bytes, _)| !bytes.is_empty())
                .map(|(bytes, id)| (bytes.as_slice(), *id)).collect();
            prop_assert_eq!(vocabulary.entries, map.len());
            for bytes in entries.iter().map(|(bytes, _)| bytes).chain(&others) {
                prop_assert_eq!(vocabulary.get(bytes), map.get(bytes.as_slice()).copied());
            }
        }
    }
}
