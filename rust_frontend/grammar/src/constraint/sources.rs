//! What clients may ask for, as text that the compiler reads.

use llguidance::regex_to_lark;
use serde_json::{Value, json};

use super::ebnf;
use super::error::ConstraintError;
use super::lark::{self, Specials};
use super::rules::Rules;
use super::schema::{self, SchemaOptions};
use super::tags;

/// Most choices of a request.
const MAX_CHOICES: usize = 10_000;
/// Most bytes of a constraint.
const MAX_BYTES: usize = 4 << 20;

/// How the text of a constraint reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A grammar in llguidance's form of Lark.
    Lark,
    /// A lowered JSON schema.
    JsonSchema,
    /// A regular expression that the whole output matches.
    Regex,
}

impl Kind {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lark => "lark",
            Self::JsonSchema => "json_schema",
            Self::Regex => "regex",
        }
    }

    /// The kind of that name.
    pub fn of(name: &str) -> Option<Self> {
        [Self::Lark, Self::JsonSchema, Self::Regex]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

/// A constraint on an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constraint {
    kind: Kind,
    text: String,
}

/// Thoughts before the constrained part of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thoughts {
    /// The text that begins them; empty where the prompt has begun them.
    pub open: String,
    /// The text that ends them.
    pub close: String,
    /// Texts that would begin a call in them.
    pub without: Vec<String>,
}

impl Constraint {
    /// A constraint whose text is as the compiler wants it.
    pub fn raw(kind: Kind, text: String) -> Self {
        Self { kind, text }
    }

    /// How the text reads.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A JSON value that is an instance of `schema`.
    ///
    /// # Errors
    /// The keyword that is invalid or not supported.
    pub fn json_schema(schema: &Value, options: &SchemaOptions) -> Result<Self, ConstraintError> {
        let lowered = schema::lower(schema, options)?;
        Self::bounded(Kind::JsonSchema, lowered.to_string())
    }

    /// Any JSON object.
    ///
    /// # Errors
    /// A pattern for white space that is not valid.
    pub fn json_object(options: &SchemaOptions) -> Result<Self, ConstraintError> {
        Self::json_schema(&json!({ "type": "object" }), options)
    }

    /// A text that the expression matches as a whole.
    ///
    /// # Errors
    /// An empty expression.
    pub fn regex(pattern: &str) -> Result<Self, ConstraintError> {
        // The whole output matches: anchors at both ends say nothing more.
        let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
        let escaped = pattern.strip_suffix('$').is_some_and(|rest| {
            rest.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
        });
        let pattern = if escaped {
            pattern
        } else {
            pattern.strip_suffix('$').unwrap_or(pattern)
        };
        if pattern.is_empty() {
            return Err(ConstraintError::whole("must not be empty"));
        }
        Self::bounded(Kind::Regex, pattern.to_owned())
    }

    /// One of these texts.
    ///
    /// # Errors
    /// No texts, too many, or an empty one.
    pub fn choice(choices: &[String]) -> Result<Self, ConstraintError> {
        if choices.is_empty() || choices.len() > MAX_CHOICES {
            let message = format!("must hold 1 to {MAX_CHOICES} texts; got {}", choices.len());
            return Err(ConstraintError::whole(message));
        }
        if choices.iter().any(String::is_empty) {
            return Err(ConstraintError::whole("must not hold an empty text"));
        }
        let literals: Vec<String> = choices.iter().map(|text| lark::literal(text)).collect();
        let text = format!("start: CHOICE\nCHOICE: {}\n", literals.join(" | "));
        Self::bounded(Kind::Lark, text)
    }

    /// A grammar: EBNF (rules with `::=`, beginning at `root`) or Lark (beginning at `start`). What begins with `start: `
    /// is Lark, whatever stands in its texts.
    ///
    /// # Errors
    /// An empty grammar, or EBNF that cannot be read.
    pub fn grammar(text: &str) -> Result<Self, ConstraintError> {
        if text.trim().is_empty() {
            return Err(ConstraintError::whole("must not be empty"));
        }
        let lark = if text.contains("::=") && !text.starts_with("start: ") {
            ebnf::to_lark(text)?
        } else {
            text.to_owned()
        };
        Self::bounded(Kind::Lark, lark)
    }

    /// Text with tagged parts, each of which has a constraint of its own. `specials` are the tokens that tags may name.
    ///
    /// # Errors
    /// The part that is invalid or not supported.
    pub fn structural_tag(
        value: &Value,
        specials: &Specials,
        options: &SchemaOptions,
    ) -> Result<Self, ConstraintError> {
        let text = tags::to_lark(value, specials, options)?;
        Self::bounded(Kind::Lark, text)
    }

    /// The same constraint behind thoughts. Where `open` is a text, the thoughts may be left out.
    #[must_use]
    pub fn behind(&self, thoughts: &Thoughts, specials: &Specials) -> Self {
        let mut rules = Rules::new(specials);
        let thoughts_text = rules.until(&thoughts.close, &thoughts.without, None);
        let body = rules.rule(&self.as_rule());
        let space = rules.terminal("/[ \\t\\r\\n]{1,8}/");
        let start = if thoughts.open.is_empty() {
            format!("{thoughts_text} {space}? {body}")
        } else {
            let open = specials.expression(&thoughts.open);
            format!("({space}? {open} {thoughts_text} {space}?)? {body}")
        };
        let text = rules.grammar(&start);
        Self::raw(Kind::Lark, text)
    }

    /// The constraint as the body of a Lark rule.
    pub(crate) fn as_rule(&self) -> String {
        match self.kind {
            Kind::JsonSchema => format!("%json {}", self.text),
            Kind::Regex => format!("/{}/", regex_to_lark(&self.text, "")),
            Kind::Lark => format!("%lark {{\n{}\n}}", self.text),
        }
    }

    fn bounded(kind: Kind, text: String) -> Result<Self, ConstraintError> {
        if text.len() > MAX_BYTES {
            let message = format!("is too large: {} bytes, of at most {MAX_BYTES}", text.len());
            return Err(ConstraintError::whole(message));
        }
        Ok(Self { kind, text })
    }
}
