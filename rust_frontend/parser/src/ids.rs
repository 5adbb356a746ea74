//! Ids of calls, from a counter and a seed: unique within a server that gives each request its own seed.

use octavo_grammar::IdPolicy;

const LETTERS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A source of ids.
#[derive(Debug, Clone)]
pub(crate) struct Ids {
    state: u64,
}

impl Ids {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Return the id of the next call; `written` is the one that the model gave it.
    pub(crate) fn next(&mut self, policy: IdPolicy, written: Option<&str>) -> String {
        match (policy, written) {
            (IdPolicy::ModelVerbatim, Some(id)) if !id.is_empty() => id.to_owned(),
            (IdPolicy::Mistral9, Some(id))
                if id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) =>
            {
                id.to_owned()
            }
            (IdPolicy::Mistral9, _) => self.letters(9),
            _ => format!("call_{}", self.letters(24)),
        }
    }

    fn letters(&mut self, count: usize) -> String {
        (0..count)
            .map(|_| char::from(LETTERS[(self.random() % LETTERS.len() as u64) as usize]))
            .collect()
    }

    /// SplitMix64 (Steele, Lea and Flood 2014).
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
