//! Constraints on outputs: what a client may ask of a text, turned into grammars that decoding can follow.
//!
//! A [`Constraint`] is made from a JSON schema, a regular expression, a list of choices, a grammar or a structural tag, and
//! is exact or refused: what is not understood is named, never left out. [`Vocabulary`] and [`Grammar`] compile it for a
//! tokenizer; a [`Matcher`] follows one output. The work is that of llguidance; what it reads loosely is lowered or refused
//! here (`schema/`).

mod calls;
mod ebnf;
mod error;
mod heads;
mod lark;
mod matcher;
mod parts;
mod rules;
mod schema;
mod sources;
mod tags;
mod texts;
mod vocabulary;

pub use calls::{Guided, GuidedTool, call_markers, calls};
pub use error::ConstraintError;
pub use heads::{Messages, Place};
pub use lark::Specials;
pub use matcher::{Checker, Grammar, Matcher};
pub use schema::{SchemaOptions, check_schema};
pub use sources::{Constraint, Kind, Thoughts};
pub use vocabulary::{Vocabulary, Word};
