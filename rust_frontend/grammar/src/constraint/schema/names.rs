//! `propertyNames`, lowered to properties and patterns.

use serde_json::{Map, Value, json};

use super::disjoint::{STRING, declared};
use super::format::{Format, lookup};
use super::keywords::count;
use super::lower::{At, Lowering};
use crate::constraint::error::ConstraintError;
use crate::constraint::matcher::{Grammar, matches_text};
use crate::constraint::{Constraint, Kind, Vocabulary};

/// Keywords of names.
const UNDERSTOOD: [&str; 7] = [
    "type",
    "enum",
    "const",
    "pattern",
    "minLength",
    "maxLength",
    "format",
];

impl<'a> Lowering<'a> {
    /// Restrict the names in a lowered object schema.
    pub(super) fn property_names(
        &mut self,
        at: At<'a>,
        schema: &'a Value,
        out: &mut Map<String, Value>,
    ) -> Result<(), ConstraintError> {
        let map = match schema {
            Value::Bool(true) => return Ok(()),
            Value::Object(map) => map,
            _ => return Err(unsupported()),
        };
        if let Some(reference) = map.get("$ref") {
            let target = self.target(at, reference)?;
            return self.property_names(target, target.schema, out);
        }
        if declared(map) & STRING == 0 {
            return Err(ConstraintError::whole("no name satisfies it"));
        }
        let constants = self.constants(map)?;
        let pattern = self.name_pattern(map)?;
        let others = map
            .keys()
            .any(|keyword| self.draft.knows(keyword) && !UNDERSTOOD.contains(&keyword.as_str()));
        if others || (constants.is_some() && pattern.is_some()) {
            return Err(unsupported());
        }
        match (constants, pattern) {
            (Some(values), _) => only_listed(&values, out),
            (None, Some(pattern)) => only_matching(&pattern, out),
            (None, None) => Ok(()),
        }
    }

    /// The pattern that names must match.
    fn name_pattern(&self, map: &Map<String, Value>) -> Result<Option<String>, ConstraintError> {
        let mut patterns = Vec::new();
        if let Some(pattern) = map.get("pattern").and_then(Value::as_str) {
            patterns.push(pattern.to_owned());
        }
        let (least, most) = (count(map, "minLength")?, count(map, "maxLength")?);
        if least.is_some() || most.is_some() {
            let most = most.map(|most| most.to_string()).unwrap_or_default();
            patterns.push(format!("^(?s:.{{{},{most}}})$", least.unwrap_or(0)));
        }
        if let Some(name) = map.get("format").and_then(Value::as_str) {
            match lookup(name, self.draft) {
                Format::Annotation => {}
                Format::Pattern(pattern) => patterns.push(format!("^(?:{pattern})$")),
                Format::Unsupported => {
                    return Err(ConstraintError::new("format", "is not supported"));
                }
            }
        }
        if patterns.len() > 1 {
            return Err(unsupported());
        }
        Ok(patterns.pop())
    }
}

fn unsupported() -> ConstraintError {
    ConstraintError::whole("is supported with one pattern, enum or length")
}

/// Allow these names.
fn only_listed(values: &[Value], out: &mut Map<String, Value>) -> Result<(), ConstraintError> {
    if out.contains_key("patternProperties") {
        return Err(unsupported());
    }
    let further = out
        .insert("additionalProperties".to_owned(), Value::Bool(false))
        .unwrap_or(Value::Bool(true));
    let allowed: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
    keep(out, |name| allowed.contains(&name));
    let listed = out.entry("properties").or_insert_with(|| json!({}));
    for name in allowed {
        if listed.get(name).is_none() {
            listed[name] = further.clone();
        }
    }
    Ok(())
}

/// Allow the names that match.
fn only_matching(pattern: &str, out: &mut Map<String, Value>) -> Result<(), ConstraintError> {
    if out.contains_key("patternProperties") {
        return Err(unsupported());
    }
    let further = out
        .insert("additionalProperties".to_owned(), Value::Bool(false))
        .unwrap_or(Value::Bool(true));
    let checked = compiled(pattern)?;
    keep(out, |name| {
        matches_text(&checked, &Value::from(name).to_string())
    });
    if further != Value::Bool(false) {
        out.insert("patternProperties".to_owned(), json!({ pattern: further }));
    }
    Ok(())
}

fn compiled(pattern: &str) -> Result<Grammar, ConstraintError> {
    let schema = json!({ "type": "string", "pattern": pattern });
    let constraint = Constraint::raw(Kind::JsonSchema, schema.to_string());
    Grammar::compile(&constraint, &Vocabulary::bytes()?).map_err(|error| error.within("pattern"))
}

/// Let no property have a name that is not allowed.
fn keep(out: &mut Map<String, Value>, allowed: impl Fn(&str) -> bool) {
    if let Some(Value::Object(listed)) = out.get_mut("properties") {
        for (name, schema) in listed.iter_mut() {
            if !allowed(name) {
                *schema = Value::Bool(false);
            }
        }
    }
}
