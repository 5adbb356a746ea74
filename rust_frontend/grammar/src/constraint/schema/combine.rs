//! Keywords that combine schemas.

use serde_json::{Map, Value};

use super::disjoint::parts;
use super::draft::Draft;
use super::keywords::wrong;
use super::lower::{At, Lowering, any_of, joined};
use crate::constraint::error::ConstraintError;

/// Most options of a `oneOf`: each is held against each other one.
const MAX_OPTIONS: usize = 512;

type Done = Result<(), ConstraintError>;

impl<'a> Lowering<'a> {
    /// Lower `$ref`, `allOf`, `anyOf`, `oneOf`, `not`, `if`.
    pub(super) fn combined(
        &mut self,
        at: At<'a>,
        map: &'a Map<String, Value>,
        out: &mut Map<String, Value>,
        also: &mut Vec<Value>,
    ) -> Done {
        for keyword in ["$dynamicRef", "$recursiveRef"] {
            if self.draft.knows(keyword) && map.contains_key(keyword) {
                return Err(ConstraintError::new(keyword, "is not supported"));
            }
        }
        if let Some(reference) = map.get("$ref") {
            also.push(self.reference(at, reference)?);
        }
        for keyword in ["allOf", "anyOf", "oneOf"] {
            match map.get(keyword) {
                None => {}
                Some(Value::Array(list)) if !list.is_empty() => {}
                Some(other) => return Err(wrong(keyword, "a list of at least one schema", other)),
            }
        }
        for (index, part) in parts(map, "allOf").enumerate() {
            let lowered = self.under(at, part, &index.to_string());
            also.push(lowered.map_err(|error| error.within("allOf"))?);
        }
        if map.contains_key("anyOf") {
            let mut options = Vec::new();
            for (index, part) in parts(map, "anyOf").enumerate() {
                let lowered = self.under(at, part, &index.to_string());
                options.push(lowered.map_err(|error| error.within("anyOf"))?);
            }
            also.push(any_of(options));
        }
        if map.contains_key("oneOf") {
            also.push(self.one_of(at, map)?);
        }
        if let Some(schema) = map.get("not") {
            let refused = || ConstraintError::new("not", "is not supported with this schema");
            also.push(self.negated(at.inner(schema), 0).ok_or_else(refused)?);
        }
        if self.draft >= Draft::D7 {
            self.condition(at, map, also)?;
        }
        debug_assert!(!out.contains_key("allOf"));
        Ok(())
    }

    /// Lower `oneOf`: each option without what the others accept.
    fn one_of(
        &mut self,
        at: At<'a>,
        map: &'a Map<String, Value>,
    ) -> Result<Value, ConstraintError> {
        let schemas: Vec<&Value> = parts(map, "oneOf").collect();
        if schemas.len() > MAX_OPTIONS {
            let message = format!(
                "has {} options, of at most {MAX_OPTIONS}; use anyOf",
                schemas.len()
            );
            return Err(ConstraintError::new("oneOf", message));
        }
        let mut options = Vec::new();
        for (index, schema) in schemas.iter().enumerate() {
            let lowered = self.under(at, schema, &index.to_string());
            let mut both = vec![lowered.map_err(|error| error.within("oneOf"))?];
            for (other_index, other) in schemas.iter().enumerate() {
                if other_index == index || self.disjoint(at.inner(schema), at.inner(other)) {
                    continue;
                }
                let refused = || {
                    let message =
                        format!("options {index} and {other_index} may overlap; use anyOf");
                    ConstraintError::new("oneOf", message)
                };
                both.push(self.negated(at.inner(other), 0).ok_or_else(refused)?);
                self.small_enough()?;
            }
            options.push(joined(Map::new(), both));
        }
        Ok(any_of(options))
    }

    /// Lower `if`, `then` and `else`.
    fn condition(
        &mut self,
        at: At<'a>,
        map: &'a Map<String, Value>,
        also: &mut Vec<Value>,
    ) -> Done {
        let (Some(test), true) = (
            map.get("if"),
            map.contains_key("then") || map.contains_key("else"),
        ) else {
            return Ok(());
        };
        let holds = self.under(at, test, "if")?;
        let refused = || ConstraintError::new("if", "is not supported with this schema");
        let fails = self.negated(at.inner(test), 0).ok_or_else(refused)?;
        let mut branch = |keyword: &str, condition: Value| match map.get(keyword) {
            None => Ok(condition),
            Some(schema) => Ok(joined(
                Map::new(),
                vec![condition, self.under(at, schema, keyword)?],
            )),
        };
        let options = vec![branch("then", holds)?, branch("else", fails)?];
        also.push(any_of(options));
        Ok(())
    }
}
