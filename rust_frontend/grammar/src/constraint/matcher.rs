//! Compiled grammars, and where outputs stand in them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use llguidance::api::TopLevelGrammar;
use serde_json::Value;

use super::error::ConstraintError;
use super::schema::SchemaOptions;
use super::sources::{Constraint, Kind};
use super::vocabulary::Vocabulary;

/// A constraint, compiled for a vocabulary. Outputs start from copies of it.
pub struct Grammar {
    start: Matcher,
}

impl std::fmt::Debug for Grammar {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Grammar").finish_non_exhaustive()
    }
}

impl Grammar {
    /// Compile. Takes microseconds to seconds, bounded by limits on the sizes of grammar and lexer.
    ///
    /// # Errors
    /// A constraint that is not valid, too large, or that no text satisfies.
    pub fn compile(
        constraint: &Constraint,
        vocabulary: &Vocabulary,
    ) -> Result<Self, ConstraintError> {
        let text = constraint.text();
        let grammar = match constraint.kind() {
            Kind::Lark => TopLevelGrammar::from_lark(text.to_owned()),
            Kind::Regex => TopLevelGrammar::from_regex(text),
            Kind::JsonSchema => {
                let schema: Value = serde_json::from_str(text)
                    .map_err(|error| ConstraintError::whole(error.to_string()))?;
                TopLevelGrammar::from_json_schema(schema)
            }
        };
        // The parser is foreign code that reads what clients send: a panic in it must cost no more than the request.
        let made = catch_unwind(AssertUnwindSafe(|| {
            let parser = vocabulary.factory().create_parser(grammar);
            llguidance::Matcher::new(parser)
        }));
        let inner = made.map_err(|_| ConstraintError::whole("the grammar cannot be compiled"))?;
        if let Some(error) = inner.get_error() {
            return Err(ConstraintError::whole(plain(&error)));
        }
        let mut start = Matcher {
            inner,
            words: vocabulary.width().div_ceil(32),
        };
        let mut mask = vec![0; start.words];
        start.mask(&mut mask)?;
        if mask.iter().all(|word| *word == 0) {
            return Err(ConstraintError::whole("no text satisfies it"));
        }
        Ok(Self { start })
    }

    /// Start an output.
    pub fn matcher(&self) -> Matcher {
        Matcher {
            inner: self.start.inner.deep_clone(),
            words: self.start.words,
        }
    }
}

/// Where one output stands. After an error every call fails.
pub struct Matcher {
    inner: llguidance::Matcher,
    words: usize,
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Matcher").finish_non_exhaustive()
    }
}

impl Matcher {
    /// Take the next token. Returns whether the output is complete: nothing may follow it.
    ///
    /// # Errors
    /// The grammar does not allow the token here, or a limit was hit.
    pub fn accept(&mut self, token: u32) -> Result<bool, ConstraintError> {
        self.inner
            .consume_token(token)
            .map_err(|error| ConstraintError::whole(plain(&error.to_string())))?;
        if self.inner.stop_reason().is_ok() {
            Ok(self.inner.is_stopped())
        } else {
            let reason = self.inner.stop_reason();
            Err(ConstraintError::whole(format!(
                "the grammar stopped: {reason}"
            )))
        }
    }

    /// Whether the output may end here.
    ///
    /// # Errors
    /// An earlier error.
    pub fn accepting(&mut self) -> Result<bool, ConstraintError> {
        self.inner
            .is_accepting()
            .map_err(|error| ConstraintError::whole(plain(&error.to_string())))
    }

    /// Write which tokens may come next: bit t % 32 of word t / 32 is token t. `out` has one word for 32 ids.
    ///
    /// # Errors
    /// A limit was hit.
    pub fn mask(&mut self, out: &mut [u32]) -> Result<(), ConstraintError> {
        let mask = self
            .inner
            .compute_mask_or_eos()
            .map_err(|error| ConstraintError::whole(plain(&error.to_string())))?;
        let words = mask.as_slice();
        let shared = words.len().min(self.words).min(out.len());
        out[..shared].copy_from_slice(&words[..shared]);
        out[shared..].fill(0);
        Ok(())
    }
}

/// Tells whether texts are instances of a schema, with their keys in the schema's order.
#[derive(Debug)]
pub struct Checker {
    grammar: Grammar,
}

impl Checker {
    /// Compile a schema.
    ///
    /// # Errors
    /// A schema that is refused.
    pub fn new(schema: &Value) -> Result<Self, ConstraintError> {
        let constraint = Constraint::json_schema(schema, &SchemaOptions::default())?;
        Self::of(&constraint)
    }

    /// Compile any constraint.
    ///
    /// # Errors
    /// A constraint that is refused.
    pub fn of(constraint: &Constraint) -> Result<Self, ConstraintError> {
        let grammar = Grammar::compile(constraint, &Vocabulary::bytes()?)?;
        Ok(Self { grammar })
    }

    /// Whether the constraint takes the whole text.
    pub fn accepts(&self, text: &str) -> bool {
        matches_text(&self.grammar, text)
    }
}

/// Whether a grammar over single bytes takes a whole text.
pub(crate) fn matches_text(grammar: &Grammar, text: &str) -> bool {
    let mut matcher = grammar.matcher();
    let mut complete = false;
    for byte in text.bytes() {
        match matcher.accept(u32::from(byte)) {
            Ok(_) if complete => return false,
            Ok(now) => complete = now,
            Err(_) => return false,
        }
    }
    complete || matcher.accepting().unwrap_or(false)
}

/// What a message of the parser's says, without the dump behind it.
fn plain(message: &str) -> String {
    let mut lines = message
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or("the grammar cannot be compiled");
    // Errors of expressions have their reason behind a picture of the place.
    let reason = lines.find_map(|line| line.strip_prefix("error: "));
    let whole = match reason {
        Some(reason) => format!("{} {reason}", first.trim_end_matches(':')),
        None => first.to_owned(),
    };
    whole.chars().take(400).collect()
}
