//! `auto`: which formats a model uses, from its chat template and its vocabulary.

use crate::builtin::Registry;
use crate::format::Format;

/// A format that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The name to choose it by.
    pub name: String,
    /// The texts that said so, for the log.
    pub because: Vec<String>,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Detected {
    /// The format of tool calls.
    pub tool: Option<Found>,
    /// The format of thoughts.
    pub reasoning: Option<Found>,
}

impl Registry {
    /// Return the formats that a model uses.
    ///
    /// A format says by which texts it is known; each must stand in the template or be a token (`is_token`). The format
    /// with the most texts wins, then the one with the longest.
    pub fn detect(&self, template: &str, is_token: impl Fn(&str) -> bool) -> Detected {
        let there = |text: &String| template.contains(text.as_str()) || is_token(text);
        let best = |lists: fn(&Format) -> &[Vec<String>], names: fn(&Format) -> &[String]| {
            let candidates = self
                .formats()
                .iter()
                .flat_map(|format| lists(format).iter().map(move |texts| (format, texts)));
            candidates
                .filter(|(_, texts)| texts.iter().all(there))
                .max_by_key(|(_, texts)| {
                    (texts.len(), texts.iter().map(String::len).sum::<usize>())
                })
                .and_then(|(format, texts)| {
                    let name = names(format).first()?.clone();
                    Some(Found {
                        name,
                        because: texts.clone(),
                    })
                })
        };
        Detected {
            tool: best(|format| &format.detect_tool, |format| &format.tool),
            reasoning: best(
                |format| &format.detect_reasoning,
                |format| &format.reasoning,
            ),
        }
    }
}
