//! Formats by the names that users type, and what to say of a name that nobody has.

use crate::builtin::Registry;
use crate::format::Format;

/// How like two names must be, from 0 to 1, for one to be suggested for the other.
const NEAR: f64 = 0.7;

/// A name that no format has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no {what} parser is called {name:?}{}. Known: auto, {}", suggestion(.nearest.as_deref()), .known.join(", "))]
pub struct UnknownName {
    /// "tool call" or "reasoning".
    pub what: &'static str,
    /// As it was typed.
    pub name: String,
    /// The known name most like it, if one is like it at all.
    pub nearest: Option<String>,
    /// All names, sorted.
    pub known: Vec<String>,
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean {name}?"))
}

impl Registry {
    /// Return the format behind a name of `--tool-call-parser`.
    ///
    /// # Errors
    /// No format has the name; the error suggests the nearest.
    pub fn find_tool(&self, name: &str) -> Result<&Format, UnknownName> {
        self.tool(name)
            .ok_or_else(|| self.unknown("tool call", name, |format| &format.tool))
    }

    /// Return the format behind a name of `--reasoning-parser`.
    ///
    /// # Errors
    /// No format has the name; the error suggests the nearest.
    pub fn find_reasoning(&self, name: &str) -> Result<&Format, UnknownName> {
        self.reasoning(name)
            .ok_or_else(|| self.unknown("reasoning", name, |format| &format.reasoning))
    }

    fn unknown(
        &self,
        what: &'static str,
        name: &str,
        names: fn(&Format) -> &[String],
    ) -> UnknownName {
        let mut known: Vec<String> = self.formats().iter().flat_map(names).cloned().collect();
        known.sort();
        known.dedup();
        let typed = plain(name);
        let nearest = known
            .iter()
            .map(|known| {
                (
                    strsim::normalized_damerau_levenshtein(&typed, &plain(known)),
                    known,
                )
            })
            .filter(|(likeness, _)| *likeness >= NEAR)
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, known)| known.clone());
        UnknownName {
            what,
            name: name.to_owned(),
            nearest,
            known,
        }
    }
}

/// A name without what people mistake in it: case, hyphens, dots.
fn plain(name: &str) -> String {
    name.to_lowercase().replace(['-', '.', ' '], "_")
}
