//! Keywords of objects.

use serde_json::{Map, Value, json};

use super::draft::Draft;
use super::keywords::{count, wrong};
use super::lower::{At, Lowering, any_of, joined};
use crate::constraint::error::ConstraintError;

/// Sets of optional properties that are written out for minProperties and maxProperties.
const MAX_SETS: usize = 64;

type Done = Result<(), ConstraintError>;

/// An object's properties as far as counting them goes.
struct Counted {
    /// Names that need not be there.
    optional: Vec<String>,
    /// How many must be.
    required: u64,
    /// Whether others may be.
    open: bool,
}

impl<'a> Lowering<'a> {
    /// Lower the keywords of objects.
    pub(super) fn objects(
        &mut self,
        at: At<'a>,
        map: &'a Map<String, Value>,
        out: &mut Map<String, Value>,
        also: &mut Vec<Value>,
    ) -> Done {
        if self.draft.knows("unevaluatedProperties") && map.contains_key("unevaluatedProperties") {
            return Err(ConstraintError::new(
                "unevaluatedProperties",
                "is not supported",
            ));
        }
        for keyword in ["properties", "patternProperties"] {
            if let Some(lowered) = self.named_schemas(at, map, keyword)? {
                out.insert(keyword.to_owned(), Value::Object(lowered));
            }
        }
        match map.get("additionalProperties") {
            Some(schema) => {
                let lowered = self.under(at, schema, "additionalProperties")?;
                out.insert("additionalProperties".to_owned(), lowered);
            }
            None if self.options.closed
                && map.contains_key("properties")
                && !map.contains_key("patternProperties") =>
            {
                out.insert("additionalProperties".to_owned(), Value::Bool(false));
            }
            None => {}
        }
        let required = names(map, "required")?;
        if !required.is_empty() {
            out.insert("required".to_owned(), json!(required));
        }
        if self.draft.knows("propertyNames")
            && let Some(schema) = map.get("propertyNames")
        {
            self.property_names(at, schema, out)
                .map_err(|error| error.within("propertyNames"))?;
        }
        self.dependent(at, map, also)?;
        Self::counts(map, out, also)
    }

    fn named_schemas(
        &mut self,
        at: At<'a>,
        map: &'a Map<String, Value>,
        keyword: &str,
    ) -> Result<Option<Map<String, Value>>, ConstraintError> {
        let schemas = match map.get(keyword) {
            None => return Ok(None),
            Some(Value::Object(schemas)) => schemas,
            Some(other) => return Err(wrong(keyword, "an object of schemas", other)),
        };
        let mut lowered = Map::new();
        for (name, schema) in schemas {
            let one = self.under(at, schema, name);
            lowered.insert(name.clone(), one.map_err(|error| error.within(keyword))?);
        }
        Ok(Some(lowered))
    }

    /// Lower what holds where a property is there.
    fn dependent(
        &mut self,
        at: At<'a>,
        map: &'a Map<String, Value>,
        also: &mut Vec<Value>,
    ) -> Done {
        let keywords: &[&str] = if self.draft <= Draft::D7 {
            &["dependencies"]
        } else if map.contains_key("dependencies") {
            // Unknown to these drafts, and whoever writes it means something.
            let message = "is no keyword of this draft; use dependentRequired or dependentSchemas";
            return Err(ConstraintError::new("dependencies", message));
        } else {
            &["dependentRequired", "dependentSchemas"]
        };
        for keyword in keywords {
            let rules = match map.get(*keyword) {
                None => continue,
                Some(Value::Object(rules)) => rules,
                Some(other) => return Err(wrong(keyword, "an object", other)),
            };
            for (name, rule) in rules {
                let mut there = vec![json!({ "required": [name] })];
                match rule {
                    Value::Array(_) if *keyword != "dependentSchemas" => {
                        there.push(json!({ "required": names(rules, name).map_err(|error| error.within(keyword))? }));
                    }
                    schema if *keyword != "dependentRequired" => {
                        let lowered = self.under(at, schema, name);
                        there.push(lowered.map_err(|error| error.within(keyword))?);
                    }
                    other => return Err(wrong(name, "a list of names", other).within(keyword)),
                }
                let absent = json!({ "properties": { name.as_str(): false } });
                also.push(any_of(vec![absent, joined(Map::new(), there)]));
            }
        }
        Ok(())
    }

    /// Lower minProperties and maxProperties: the compiler counts only where every named property is required.
    fn counts(
        map: &Map<String, Value>,
        out: &mut Map<String, Value>,
        also: &mut Vec<Value>,
    ) -> Done {
        let least = count(map, "minProperties")?.unwrap_or(0);
        let most = count(map, "maxProperties")?;
        let counted = counted(out);
        let all = counted.required + counted.optional.len() as u64;
        if most.is_some_and(|most| most < least) {
            return Err(ConstraintError::new(
                "minProperties",
                "is greater than maxProperties",
            ));
        }
        if least > counted.required {
            also.push(at_least(&counted, least)?);
        }
        if let Some(most) = most.filter(|most| counted.open || all > *most) {
            also.push(at_most(&counted, most)?);
        }
        Ok(())
    }
}

fn counted(out: &Map<String, Value>) -> Counted {
    let required: Vec<&str> = out
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let listed = out.get("properties").and_then(Value::as_object);
    let optional = listed
        .into_iter()
        .flatten()
        .filter(|(name, schema)| {
            !required.contains(&name.as_str()) && **schema != Value::Bool(false)
        })
        .map(|(name, _)| name.clone());
    Counted {
        optional: optional.collect(),
        required: required.len() as u64,
        open: out.get("additionalProperties") != Some(&Value::Bool(false))
            || out.contains_key("patternProperties"),
    }
}

/// Objects with at least so many properties.
fn at_least(counted: &Counted, least: u64) -> Result<Value, ConstraintError> {
    let missing = usize::try_from(least - counted.required).unwrap_or(usize::MAX);
    let other = json!({ "type": ["null", "boolean", "number", "string", "array"] });
    let refused = |message: &str| ConstraintError::new("minProperties", message);
    if counted.open && missing > 1 {
        // Nothing keeps the keys of further properties apart.
        return Err(refused(
            "above 1 is supported only where additionalProperties is false",
        ));
    }
    if missing > counted.optional.len() && !counted.open {
        return Err(refused("is more than there are properties"));
    }
    let sets = subsets(&counted.optional, missing)
        .ok_or_else(|| refused("has too many ways to be met"))?;
    let mut options: Vec<Value> = sets
        .into_iter()
        .filter(|set| set.len() == missing)
        .map(|set| json!({ "type": "object", "required": set }))
        .collect();
    if counted.open {
        let none: Map<String, Value> = counted
            .optional
            .iter()
            .map(|name| (name.clone(), Value::Bool(false)))
            .collect();
        options.push(json!({ "type": "object", "properties": none, "minProperties": least }));
    }
    options.push(other);
    Ok(any_of(options))
}

/// Objects with at most so many properties.
fn at_most(counted: &Counted, most: u64) -> Result<Value, ConstraintError> {
    let other = json!({ "type": ["null", "boolean", "number", "string", "array"] });
    let refused = |message: &str| ConstraintError::new("maxProperties", message);
    let room = most
        .checked_sub(counted.required)
        .ok_or_else(|| refused("is less than the number of required properties"))?;
    let room = usize::try_from(room)
        .unwrap_or(usize::MAX)
        .min(counted.optional.len());
    let sets =
        subsets(&counted.optional, room).ok_or_else(|| refused("has too many ways to be met"))?;
    let mut options: Vec<Value> = sets
        .into_iter()
        .map(|set| {
            let absent = counted.optional.iter().filter(|name| !set.contains(name));
            let absent: Map<String, Value> = absent.map(|name| (name.clone(), Value::Bool(false))).collect();
            json!({ "type": "object", "required": set, "properties": absent, "maxProperties": most })
        })
        .collect();
    options.push(other);
    Ok(any_of(options))
}

/// All sets of at most so many names, in the names' order. None where they are too many.
fn subsets(names: &[String], most: usize) -> Option<Vec<Vec<&String>>> {
    let mut sets: Vec<Vec<&String>> = vec![Vec::new()];
    for name in names {
        for index in 0..sets.len() {
            if sets[index].len() < most {
                let mut larger = sets[index].clone();
                larger.push(name);
                sets.push(larger);
                if sets.len() > MAX_SETS {
                    return None;
                }
            }
        }
    }
    Some(sets)
}

/// A list of names; empty where the keyword is not there.
pub(super) fn names(
    map: &Map<String, Value>,
    keyword: &str,
) -> Result<Vec<String>, ConstraintError> {
    let Some(value) = map.get(keyword) else {
        return Ok(Vec::new());
    };
    let listed = value.as_array().and_then(|items| {
        items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect::<Option<Vec<_>>>()
    });
    let mut names = listed.ok_or_else(|| wrong(keyword, "a list of names", value))?;
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    Ok(names)
}
