//! Seeds for requests that bring none.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// SplitMix64 (Steele, Lea and Flood, 2014): a counter that is mixed, so that threads share it without a lock.
#[derive(Debug)]
pub(crate) struct Seeds {
    state: AtomicU64,
}

/// The odd step of the counter: 2^64 divided by the golden ratio.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

impl Seeds {
    /// Starts from a seed, or from the system's randomness.
    pub(crate) fn new(seed: Option<u64>) -> Self {
        // The keys of the standard hasher are the system's random numbers.
        let state = seed.unwrap_or_else(|| RandomState::new().hash_one(STEP));
        Self {
            state: AtomicU64::new(state),
        }
    }

    /// Draws the next one.
    pub(crate) fn draw(&self) -> u64 {
        let state = self.state.fetch_add(STEP, Ordering::Relaxed);
        mix(state.wrapping_add(STEP))
    }
}

/// The seed of output `index` of a request; 0 has the request's own, the others those that a generator started from it
/// would draw.
pub(crate) fn child_seed(seed: u64, index: u32) -> u64 {
    if index == 0 {
        return seed;
    }
    mix(seed.wrapping_add(STEP.wrapping_mul(u64::from(index))))
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::{Seeds, child_seed};

    #[test]
    fn a_seed_fixes_the_sequence() {
        // The first outputs that the authors publish for seed 1234567.
        let seeds = Seeds::new(Some(1_234_567));
        assert_eq!(
            [seeds.draw(), seeds.draw()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]
        );
    }

    #[test]
    fn outputs_of_a_request_have_seeds_of_their_own() {
        let drawn = Seeds::new(Some(9));
        assert_eq!(child_seed(9, 0), 9);
        assert_eq!(
            [child_seed(9, 1), child_seed(9, 2)],
            [drawn.draw(), drawn.draw()]
        );
    }

    #[test]
    fn without_a_seed_sequences_differ() {
        assert_ne!(Seeds::new(None).draw(), Seeds::new(None).draw());
    }
}
