//! What short words encoded to lately. The tables of a vocabulary are megabytes, of which each word touches lines that no
//! core has at hand; the words of most texts are few, and this table of theirs stays in a core's own cache.

/// Words that are kept; a power of two. With an entry of 32 bytes, 256 KiB.
const KEPT: usize = 1 << 13;

/// Most ids of a word.
const IDS: usize = 3;

/// The words of one thread. A place holds one word, the last that fell on it.
#[derive(Debug)]
pub(crate) struct Recent(Vec<Entry>);

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    key: Key,
    ids: [u32; IDS],
    count: u8,
}

/// A word of 1 to 16 bytes: which ones follows from all fields together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Key {
    first: u64,
    last: u64,
    length: u8,
}

impl Recent {
    pub(crate) fn new() -> Self {
        Self(vec![Entry::default(); KEPT])
    }

    /// Appends the ids of a word; false where it is not known.
    #[inline]
    pub(crate) fn get(&self, key: Key, ids: &mut Vec<u32>) -> bool {
        let entry = &self.0[key.place()];
        if entry.key != key {
            return false;
        }
        match entry.count {
            1 => ids.push(entry.ids[0]),
            count => ids.extend_from_slice(&entry.ids[..usize::from(count)]),
        }
        true
    }

    /// Whether a word is known.
    #[inline]
    pub(crate) fn has(&self, key: Key) -> bool {
        self.0[key.place()].key == key
    }

    /// Keeps the ids of a word, if they are few.
    pub(crate) fn put(&mut self, key: Key, ids: &[u32]) {
        if ids.len() > IDS {
            return;
        }
        let mut entry = Entry {
            key,
            count: u8::try_from(ids.len()).unwrap_or_default(),
            ids: [0; IDS],
        };
        entry.ids[..ids.len()].copy_from_slice(ids);
        self.0[key.place()] = entry;
    }
}

impl Key {
    /// The key of a word; `None` for one that is too long.
    #[inline]
    pub(crate) fn of(word: &[u8]) -> Option<Self> {
        let (first, last) = match (word.first_chunk::<8>(), word.last_chunk::<8>()) {
            _ if word.len() > 16 || word.is_empty() => return None,
            (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
            _ => match (word.first_chunk::<4>(), word.last_chunk::<4>()) {
                (Some(first), Some(last)) => (
                    u64::from(u32::from_le_bytes(*first)),
                    u64::from(u32::from_le_bytes(*last)),
                ),
                _ => {
                    let all = word.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
                    (all, 0)
                }
            },
        };
        Some(Self {
            first,
            last,
            length: u8::try_from(word.len()).unwrap_or_default(),
        })
    }

    fn place(self) -> usize {
        let mixed = self.first.wrapping_mul(0x9E37_79B9_7F4A_7C15)
            ^ self.last.wrapping_mul(0xC2B2_AE3D_27D4_EB4F)
            ^ u64::from(self.length);
        (mixed ^ mixed >> 29 ^ mixed >> 47) as usize % KEPT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_put_comes_back_until_its_place_is_taken() {
        let mut recent = Recent::new();
        let key = |word: &str| Key::of(word.as_bytes()).unwrap();
        let mut ids = vec![9];
        assert!(!recent.get(key("word"), &mut ids));
        recent.put(key("word"), &[1, 2]);
        recent.put(key("long"), &[1, 2, 3, 4]);
        assert!(recent.get(key("word"), &mut ids) && ids == [9, 1, 2]);
        assert!(!recent.get(key("long"), &mut ids));
        assert_eq!(Key::of(b""), None);
        assert_eq!(Key::of(&[b'a'; 17]), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn different_words_have_different_keys(
            left in prop::collection::vec(0u8..3, 1..17),
            right in prop::collection::vec(0u8..3, 1..17),
        ) {
            prop_assert_eq!(left == right, Key::of(&left) == Key::of(&right));
        }
    }
}
