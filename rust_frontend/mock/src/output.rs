//! Which token comes at which place: a pure function of the request, so that a request that is resumed goes on as before.

use std::str::FromStr;

/// Where tokens come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// The prompt, again and again.
    Echo,
    /// A stream drawn from the request's seed, of ids from `low` up to, not including, `high`.
    Random {
        /// The first id.
        low: i32,
        /// One more than the last.
        high: i32,
    },
    /// These ids, again and again; at least one.
    Ids(Vec<i32>),
}

impl Output {
    /// The token at index `at` of the output for a prompt and a seed.
    #[must_use]
    pub fn token(&self, prompt: &[i32], seed: u64, at: u64) -> i32 {
        match self {
            Self::Echo => around(prompt, at),
            Self::Ids(ids) => around(ids, at),
            Self::Random { low, high } => {
                let width = u64::from(high.abs_diff(*low)).max(1);
                let offset = mix(seed ^ mix(at)) % width;
                // Below the width, which fits.
                low.saturating_add(i32::try_from(offset).unwrap_or(0))
            }
        }
    }
}

fn around(ids: &[i32], at: u64) -> i32 {
    let len = ids.len().max(1) as u64;
    let place = usize::try_from(at % len).unwrap_or(0);
    ids.get(place).copied().unwrap_or(0)
}

/// Steele, Lea, Flood: "Fast splittable pseudorandom number generators" (2014), the finalizer.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl FromStr for Output {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no output; give echo, random:LOW-HIGH (ids, HIGH not included) or ids:5,6,7"
            )
        };
        let id = |word: &str| word.trim().parse::<i32>().ok().filter(|id| *id >= 0);
        match text.split_once(':') {
            None if text == "echo" => Ok(Self::Echo),
            Some(("random", range)) => {
                let (low, high) = range.split_once('-').ok_or_else(wrong)?;
                match (id(low), id(high)) {
                    (Some(low), Some(high)) if low < high => Ok(Self::Random { low, high }),
                    _ => Err(wrong()),
                }
            }
            Some(("ids", list)) => list
                .split(',')
                .map(id)
                .collect::<Option<Vec<_>>>()
                .map(Self::Ids)
                .ok_or_else(wrong),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(output: &str, prompt: &[i32], seed: u64, count: u64) -> Vec<i32> {
        let output: Output = output.parse().unwrap();
        (0..count)
            .map(|at| output.token(prompt, seed, at))
            .collect()
    }

    #[test]
    fn echoes_and_lists_go_round() {
        assert_eq!(first("echo", &[7, 8], 0, 5), [7, 8, 7, 8, 7]);
        assert_eq!(first("echo", &[], 0, 2), [0, 0]);
        assert_eq!(first("ids:5,6,9", &[1], 0, 4), [5, 6, 9, 5]);
    }

    #[test]
    fn random_ids_depend_on_the_seed_and_stay_in_range() {
        let one = first("random:100-110", &[], 1, 200);
        assert!(one.iter().all(|id| (100..110).contains(id)));
        assert!((100..110).all(|id| one.contains(&id)));
        assert_eq!(one, first("random:100-110", &[3], 1, 200));
        assert_ne!(one, first("random:100-110", &[], 2, 200));
    }

    #[test]
    fn what_is_no_output_is_named() {
        for text in [
            "",
            "random",
            "random:5",
            "random:5-5",
            "random:-1-5",
            "ids:",
            "ids:1,x",
            "text:a",
        ] {
            let error = text.parse::<Output>().unwrap_err();
            assert!(error.contains(text) && error.contains("echo"), "{error}");
        }
    }
}
