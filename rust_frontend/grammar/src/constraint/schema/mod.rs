//! JSON schemas, lowered to what the grammar compiler enforces exactly.
//!
//! What comes out accepts valid instances only, and all of them whose keys stand in the schema's order, but for these:
//! integers are written without a fraction or exponent, strings under a pattern without `\u` escapes. Annotations and
//! unknown keywords are left out, as the drafts say; a keyword that can reject an instance is enforced or refused by name.

mod combine;
mod disjoint;
mod draft;
mod format;
mod keywords;
mod lower;
mod names;
mod negate;
mod object;
mod reference;

use serde_json::{Map, Value, json};

use super::error::ConstraintError;
use super::lark::MAX_SPACE;
use lower::Lowering;

/// How instances are written, and what a schema leaves open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SchemaOptions {
    /// No white space between tokens.
    pub compact: bool,
    /// A pattern for white space between tokens, in place of the default.
    pub whitespace: Option<String>,
    /// Objects that say nothing of additional properties have none.
    pub closed: bool,
}

/// Check that a schema can be enforced, compiling it.
///
/// # Errors
/// The keyword that is invalid or not supported, with the reason.
pub fn check_schema(schema: &Value) -> Result<(), ConstraintError> {
    compiles(&lower(schema, &SchemaOptions::default())?)
}

/// Check that a lowered schema compiles.
pub(crate) fn compiles(lowered: &Value) -> Result<(), ConstraintError> {
    let constraint = super::Constraint::raw(super::Kind::JsonSchema, lowered.to_string());
    super::Grammar::compile(&constraint, &super::Vocabulary::bytes()?).map(|_| ())
}

/// Lower a schema.
pub(crate) fn lower(schema: &Value, options: &SchemaOptions) -> Result<Value, ConstraintError> {
    let lowered = Lowering::run(schema, options)?;
    let mut map = match lowered {
        Value::Object(map) => map,
        Value::Bool(true) => Map::new(),
        _ => return Err(ConstraintError::whole("no instance satisfies the schema")),
    };
    let space = match (&options.whitespace, options.compact) {
        (Some(pattern), _) => json!({ "whitespace_pattern": pattern }),
        (None, true) => json!({ "whitespace_flexible": false }),
        (None, false) => {
            json!({ "whitespace_pattern": format!(r"[\x20\x0A\x0D\x09]{{1,{MAX_SPACE}}}") })
        }
    };
    let mut guidance = space;
    guidance["json_allow_general_unicode_escapes"] = Value::Bool(true);
    map.insert("x-guidance".to_owned(), guidance);
    Ok(Value::Object(map))
}
