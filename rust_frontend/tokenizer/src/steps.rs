//! The pre-tokenizer of a byte-level tokenizer.json: steps that cut a text into words, each the pieces of the one before.

use serde_json::Value;

use crate::splitter::{Scan, Splitter};

/// What a byte-level step splits by unless it is told not to: GPT-2's pattern.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The steps, in order.
#[derive(Debug)]
pub(crate) struct Steps(Vec<Step>);

#[derive(Debug)]
enum Step {
    /// Matches of a pattern; with `rest` also what is between them.
    Pattern { splitter: Splitter, rest: bool },
    /// Digits, each by itself or together, and what is between them.
    Digits { single: bool },
}

impl Steps {
    /// Reads a pre-tokenizer. `None` for one that is not byte level, or that does what no step here does.
    pub(crate) fn read(pre_tokenizer: &Value) -> Option<Self> {
        let mut steps = Self(Vec::new());
        let (last, before) = match kind(pre_tokenizer) {
            "Sequence" => pre_tokenizer
                .get("pretokenizers")?
                .as_array()?
                .split_last()?,
            _ => (pre_tokenizer, Default::default()),
        };
        for step in before {
            steps.0.push(step_of(step)?);
        }
        // Behind it, characters stand for bytes, and a splitter would see those.
        let level = (kind(last) == "ByteLevel").then_some(last)?;
        if level.get("add_prefix_space") != Some(&Value::Bool(false)) {
            return None;
        }
        if level.get("use_regex") != Some(&Value::Bool(false)) {
            steps.0.push(Step::Pattern {
                splitter: Splitter::new(GPT2).ok()?,
                rest: true,
            });
        }
        Some(steps)
    }

    /// Memory for one thread.
    pub(crate) fn scans(&self) -> Vec<Option<Scan>> {
        let scan = |step: &Step| match step {
            Step::Pattern { splitter, .. } => Some(splitter.scan()),
            Step::Digits { .. } => None,
        };
        self.0.iter().map(scan).collect()
    }

    /// Calls `give` for each word of a text. `scans` are of [`Self::scans`].
    ///
    /// # Errors
    /// A pattern that gives up on the text.
    pub(crate) fn words<'t>(
        &self,
        scans: &mut [Option<Scan>],
        text: &'t str,
        give: &mut impl FnMut(&'t str),
    ) -> Result<(), String> {
        words(&self.0, scans, text, give)
    }
}

fn kind(step: &Value) -> &str {
    step.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn step_of(step: &Value) -> Option<Step> {
    match kind(step) {
        "Digits" => Some(Step::Digits {
            single: step.get("individual_digits")?.as_bool()?,
        }),
        "Split" => {
            let pattern = step.pointer("/pattern/Regex")?.as_str()?;
            let rest = match (
                step.get("behavior")?.as_str()?,
                step.get("invert")?.as_bool()?,
            ) {
                ("Isolated", _) => true,
                ("Removed", true) => false,
                _ => return None,
            };
            let splitter = Splitter::new(pattern).ok()?;
            Some(Step::Pattern { splitter, rest })
        }
        _ => None,
    }
}

fn words<'t>(
    steps: &[Step],
    scans: &mut [Option<Scan>],
    text: &'t str,
    give: &mut impl FnMut(&'t str),
) -> Result<(), String> {
    let (Some((step, steps)), Some((scan, scans))) = (steps.split_first(), scans.split_first_mut())
    else {
        if !text.is_empty() {
            give(text);
        }
        return Ok(());
    };
    match (step, scan) {
        (Step::Pattern { splitter, rest }, Some(scan)) => {
            let mut at = 0;
            while at < text.len() {
                let found = splitter.find(scan, text, at)?;
                let found = found.unwrap_or(text.len()..text.len());
                if *rest && at < found.start {
                    words(steps, scans, &text[at..found.start], give)?;
                }
                at = found.end;
                words(steps, scans, &text[found], give)?;
            }
        }
        (Step::Digits { single }, _) => {
            let mut rest = text;
            while let Some(first) = rest.chars().next() {
                let digits = first.is_numeric();
                let end = match digits && *single {
                    true => first.len_utf8(),
                    false => rest
                        .find(|letter: char| letter.is_numeric() != digits)
                        .unwrap_or(rest.len()),
                };
                words(steps, scans, &rest[..end], give)?;
                rest = &rest[end..];
            }
        }
        (Step::Pattern { .. }, None) => {
            return Err("a pattern was given no memory".to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cut(pre_tokenizer: &Value, text: &str) -> Vec<String> {
        let steps = Steps::read(pre_tokenizer).unwrap();
        let mut words = Vec::new();
        steps
            .words(&mut steps.scans(), text, &mut |word| {
                words.push(word.to_owned())
            })
            .unwrap();
        words
    }

    fn split(pattern: &str, behavior: &str, invert: bool) -> Value {
        json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert})
    }

    fn level(pattern: bool) -> Value {
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": pattern})
    }

    #[test]
    fn steps_cut_the_pieces_of_those_before() {
        let digits = json!({"type": "Digits", "individual_digits": true});
        let code = json!({"type": "Sequence", "pretokenizers": [digits, level(true)]});
        assert_eq!(
            cut(&code, "it's x12 +=\n 3"),
            ["it", "'s", " x", "1", "2", " +=", "\n ", "3"]
        );
        let threes = json!({"type": "Sequence", "pretokenizers": [split(r"\p{N}{1,3}", "Isolated", false), split("[^ ]+", "Isolated", false), level(false)]});
        assert_eq!(cut(&threes, "a1234 b"), ["a", "123", "4", " ", "b"]);
        let only = json!({"type": "Sequence", "pretokenizers": [split("[^ ]+", "Removed", true), level(false)]});
        assert_eq!(cut(&only, "a  bc "), ["a", "bc"]);
        assert_eq!(cut(&level(false), "a b"), ["a b"]);
    }

    #[test]
    fn what_is_not_known_is_none() {
        for other in [
            Value::Null,
            json!({"type": "Metaspace"}),
            json!({"type": "ByteLevel", "add_prefix_space": true, "use_regex": true}),
            json!({"type": "Sequence", "pretokenizers": [level(true), split("a", "Isolated", false)]}),
            json!({"type": "Sequence", "pretokenizers": [split("a", "Removed", false), level(true)]}),
            json!({"type": "Sequence", "pretokenizers": [{"type": "Punctuation"}, level(true)]}),
        ] {
            assert!(Steps::read(&other).is_none(), "{other}");
        }
    }
}
