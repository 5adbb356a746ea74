//! Which token comes at which place: a pure function of the request, so that a request that is resumed goes on as before.

use std::fs;
use std::str::FromStr;

use serde_json::Value;

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
    /// What the first rule that fits the prompt says; the prompt's echo where none does.
    Rules(Vec<Rule>),
}

/// What is said to prompts that hold something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// These ids, one after the other, stand somewhere in the prompt. None: every prompt fits.
    pub when: Vec<i32>,
    /// The output, again and again; at least one id.
    pub say: Vec<i32>,
}

impl Rule {
    fn fits(&self, prompt: &[i32]) -> bool {
        self.when.is_empty()
            || prompt
                .windows(self.when.len())
                .any(|part| part == self.when)
    }

    /// Reads a line of a file of rules: an object with the lists `when` and `say`.
    fn parse(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let ids = |name: &str| -> Option<Vec<i32>> {
            let items = value.get(name)?.as_array()?;
            let id = |item: &Value| i32::try_from(item.as_i64()?).ok().filter(|id| *id >= 0);
            items.iter().map(id).collect()
        };
        let (when, say) = (ids("when")?, ids("say")?);
        (!say.is_empty()).then_some(Self { when, say })
    }

    /// Reads a file of rules, one a line.
    fn read(path: &str) -> Result<Vec<Self>, String> {
        let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        let rule = |(index, line): (usize, &str)| {
            Self::parse(line).ok_or_else(|| {
                let number = index + 1;
                format!(
                    "{path}, line {number} is no rule; give {{\"when\": [ids], \"say\": [ids]}}, at least one id to say"
                )
            })
        };
        text.lines().enumerate().map(rule).collect()
    }
}

impl Output {
    /// The token at index `at` of the output for a prompt and a seed.
    #[must_use]
    pub fn token(&self, prompt: &[i32], seed: u64, at: u64) -> i32 {
        match self {
            Self::Echo => around(prompt, at),
            Self::Ids(ids) => around(ids, at),
            Self::Rules(rules) => {
                let rule = rules.iter().find(|rule| rule.fits(prompt));
                around(rule.map_or(prompt, |rule| &rule.say), at)
            }
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
                "{text:?} is no output; give echo, random:LOW-HIGH (ids, HIGH not included), ids:5,6,7 or rules:FILE"
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
            Some(("rules", path)) => Rule::read(path).map(Self::Rules),
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
    fn the_first_rule_that_fits_speaks() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rules");
        let rules = |text: &str| {
            fs::write(&file, text).unwrap();
            format!("rules:{}", file.display())
        };
        let output = rules("{\"when\": [2, 3], \"say\": [7, 8]}\n{\"when\": [3], \"say\": [9]}\n");
        assert_eq!(first(&output, &[1, 2, 3], 0, 3), [7, 8, 7]);
        assert_eq!(first(&output, &[3, 2], 0, 2), [9, 9]);
        assert_eq!(first(&output, &[5, 6], 0, 2), [5, 6]);
        let output = rules("{\"when\": [], \"say\": [4]}");
        assert_eq!(first(&output, &[], 0, 1), [4]);
        for line in [
            "x",
            "{\"when\": [1]}",
            "{\"when\": [], \"say\": []}",
            "{\"when\": [-1], \"say\": [1]}",
        ] {
            let error = rules(&format!("{{\"when\": [], \"say\": [4]}}\n{line}")).parse::<Output>();
            assert!(error.unwrap_err().contains("line 2"), "{line}");
        }
        assert!(
            "rules:/nowhere"
                .parse::<Output>()
                .unwrap_err()
                .contains("/nowhere")
        );
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
