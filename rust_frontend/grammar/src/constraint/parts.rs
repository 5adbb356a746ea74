//! A lowered schema as alternatives that combine nothing: what is needed to write values in other forms than JSON.

use serde_json::{Map, Value, json};

use super::error::ConstraintError;
use super::matcher::Checker;
use super::sources::{Constraint, Kind};

/// Most alternatives of one schema.
const MAX_PARTS: usize = 256;
/// References and combinations within each other.
const MAX_DEPTH: usize = 24;

/// One alternative.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Part {
    /// Any value.
    Any,
    /// What a reference names.
    Reference(String),
    /// Keywords that look at one value; several patterns are a list.
    Plain(Map<String, Value>),
}

type Parts = Result<Vec<Part>, ConstraintError>;

/// The alternatives of a schema within a lowered document. With `resolve`, references are followed.
pub(crate) fn parts(root: &Value, schema: &Value, resolve: bool) -> Parts {
    let found = alternatives(root, schema, 0)?;
    if !resolve {
        return Ok(found);
    }
    let mut out = Vec::new();
    for part in found {
        match part {
            Part::Reference(pointer) => out.extend(followed(root, &pointer, 0)?),
            other => out.push(other),
        }
    }
    bounded(out)
}

fn bounded(parts: Vec<Part>) -> Parts {
    if parts.len() > MAX_PARTS {
        return Err(ConstraintError::whole(
            "has too many alternatives for this model's output format",
        ));
    }
    Ok(parts)
}

fn followed(root: &Value, pointer: &str, depth: usize) -> Parts {
    let target = pointer
        .strip_prefix('#')
        .and_then(|pointer| root.pointer(pointer))
        .filter(|_| depth < MAX_DEPTH)
        .ok_or_else(|| unsupported("$ref"))?;
    let mut out = Vec::new();
    for part in alternatives(root, target, depth + 1)? {
        match part {
            Part::Reference(next) => out.extend(followed(root, &next, depth + 1)?),
            other => out.push(other),
        }
    }
    bounded(out)
}

fn alternatives(root: &Value, schema: &Value, depth: usize) -> Parts {
    let map = match schema {
        Value::Bool(false) => return Ok(Vec::new()),
        Value::Object(map) if depth < MAX_DEPTH => map,
        Value::Object(_) => return Err(unsupported("$ref")),
        _ => return Ok(vec![Part::Any]),
    };
    let mut all: Vec<Vec<Part>> = Vec::new();
    let own: Map<String, Value> = map
        .iter()
        .filter(|(key, _)| {
            !["allOf", "anyOf", "$ref", "$defs", "x-guidance"].contains(&key.as_str())
        })
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if !own.is_empty() {
        all.push(vec![Part::Plain(own)]);
    }
    if let Some(pointer) = map.get("$ref").and_then(Value::as_str) {
        all.push(vec![Part::Reference(pointer.to_owned())]);
    }
    for part in list(map, "allOf") {
        all.push(alternatives(root, part, depth + 1)?);
    }
    if map.contains_key("anyOf") {
        let mut options = Vec::new();
        for option in list(map, "anyOf") {
            options.extend(alternatives(root, option, depth + 1)?);
        }
        all.push(bounded(options)?);
    }
    let mut out = vec![Part::Any];
    for next in all {
        out = product(root, &out, &next, depth)?;
    }
    Ok(out)
}

fn list<'m>(map: &'m Map<String, Value>, key: &str) -> impl Iterator<Item = &'m Value> {
    map.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn product(root: &Value, left: &[Part], right: &[Part], depth: usize) -> Parts {
    let mut out = Vec::new();
    for one in left {
        for other in right {
            match (one, other) {
                (Part::Any, part) | (part, Part::Any) => out.push(part.clone()),
                (Part::Plain(one), Part::Plain(other)) => {
                    out.extend(merged(one, other)?.map(Part::Plain));
                }
                (Part::Reference(pointer), part) | (part, Part::Reference(pointer)) => {
                    let target = followed(root, pointer, depth + 1)?;
                    out.extend(product(
                        root,
                        &target,
                        std::slice::from_ref(part),
                        depth + 1,
                    )?);
                }
            }
        }
    }
    bounded(out)
}

/// Both at once; none where no value can be.
fn merged(
    one: &Map<String, Value>,
    other: &Map<String, Value>,
) -> Result<Option<Map<String, Value>>, ConstraintError> {
    let mut out = one.clone();
    for (key, value) in other {
        let Some(before) = out.get(key).cloned() else {
            out.insert(key.clone(), value.clone());
            continue;
        };
        if before == *value {
            continue;
        }
        let both = match key.as_str() {
            "type" => match common_types(&before, value) {
                Some(types) => types,
                None => return Ok(None),
            },
            "enum" => Value::Array(
                list(one, "enum")
                    .filter(|candidate| list(other, "enum").any(|value| value == *candidate))
                    .cloned()
                    .collect(),
            ),
            "pattern" => Value::Array(
                [&before, value]
                    .into_iter()
                    .flat_map(|pattern| match pattern {
                        Value::Array(several) => several.clone(),
                        one => vec![one.clone()],
                    })
                    .collect(),
            ),
            "required" => Value::Array(list(one, key).chain(list(other, key)).cloned().collect()),
            "minLength" | "minItems" | "minimum" | "exclusiveMinimum" => {
                tighter(&before, value, true)
            }
            "maxLength" | "maxItems" | "maximum" | "exclusiveMaximum" => {
                tighter(&before, value, false)
            }
            _ => return Err(unsupported("allOf")),
        };
        out.insert(key.clone(), both);
    }
    let objects = |map: &Map<String, Value>| map.contains_key("properties");
    let closed = |map: &Map<String, Value>| map.contains_key("additionalProperties");
    if (objects(one) && closed(other)) || (objects(other) && closed(one)) {
        return Err(unsupported("allOf"));
    }
    Ok(Some(out))
}

fn tighter(one: &Value, other: &Value, lower: bool) -> Value {
    let greater = one.as_f64() > other.as_f64();
    if greater == lower {
        one.clone()
    } else {
        other.clone()
    }
}

fn common_types(one: &Value, other: &Value) -> Option<Value> {
    let names = |value: &Value| match value {
        Value::Array(names) => names
            .iter()
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect(),
        Value::String(name) => vec![name.clone()],
        _ => Vec::new(),
    };
    let (one, other) = (names(one), names(other));
    let has = |names: &[String], name: &str| {
        names
            .iter()
            .any(|known| known == name || (name == "integer" && known == "number"))
    };
    let mut both: Vec<String> = one
        .iter()
        .filter(|name| has(&other, name))
        .cloned()
        .collect();
    both.extend(
        other
            .iter()
            .filter(|name| has(&one, name) && !one.contains(name))
            .cloned(),
    );
    (!both.is_empty()).then(|| json!(both))
}

/// The types that an alternative without constants admits. Where it names none, those that its keywords look at.
pub(crate) fn kinds(plain: &Map<String, Value>) -> Vec<&'static str> {
    const ALL: [&str; 7] = [
        "string", "integer", "number", "boolean", "null", "array", "object",
    ];
    let named: Vec<&'static str> = match plain.get("type") {
        Some(Value::String(name)) => ALL.into_iter().filter(|kind| kind == name).collect(),
        Some(Value::Array(names)) => ALL
            .into_iter()
            .filter(|kind| names.iter().any(|name| name == kind))
            .collect(),
        _ => {
            let families: [(&'static str, &[&str]); 4] = [
                (
                    "object",
                    &[
                        "properties",
                        "required",
                        "additionalProperties",
                        "patternProperties",
                        "minProperties",
                        "maxProperties",
                    ],
                ),
                ("array", &["items", "prefixItems", "minItems", "maxItems"]),
                ("string", &["pattern", "minLength", "maxLength"]),
                (
                    "number",
                    &[
                        "minimum",
                        "maximum",
                        "exclusiveMinimum",
                        "exclusiveMaximum",
                        "multipleOf",
                    ],
                ),
            ];
            families
                .into_iter()
                .filter(|(_, keys)| keys.iter().any(|key| plain.contains_key(*key)))
                .map(|(kind, _)| kind)
                .collect()
        }
    };
    let whole = named.contains(&"number");
    named
        .into_iter()
        .filter(|kind| !(whole && *kind == "integer"))
        .collect()
}

/// The constants of an alternative that its other keywords take; none where it has no constants.
pub(crate) fn constants(
    root: &Value,
    plain: &Map<String, Value>,
) -> Result<Option<Vec<Value>>, ConstraintError> {
    if !plain.contains_key("enum") {
        return Ok(None);
    }
    let mut rest = plain.clone();
    rest.remove("enum");
    let values: Vec<Value> = list(plain, "enum").cloned().collect();
    if rest.is_empty() {
        return Ok(Some(values));
    }
    let checker = Checker::of(&leaf(root, &rest))?;
    Ok(Some(
        values
            .into_iter()
            .filter(|value| checker.accepts(&value.to_string()))
            .collect(),
    ))
}

/// An alternative as a schema of its own for the compiler.
pub(crate) fn leaf(root: &Value, plain: &Map<String, Value>) -> Constraint {
    let mut map = plain.clone();
    if let Some(Value::Array(patterns)) = map.remove("pattern") {
        let all: Vec<Value> = patterns
            .iter()
            .map(|one| json!({ "pattern": one }))
            .collect();
        map.insert("allOf".to_owned(), Value::Array(all));
    } else if let Some(pattern) = plain.get("pattern") {
        map.insert("pattern".to_owned(), pattern.clone());
    }
    for key in ["$defs", "x-guidance"] {
        if let Some(shared) = root.get(key) {
            map.insert(key.to_owned(), shared.clone());
        }
    }
    Constraint::raw(Kind::JsonSchema, Value::Object(map).to_string())
}

/// What this model's output format cannot say.
pub(crate) fn unsupported(keyword: &str) -> ConstraintError {
    ConstraintError::new(
        keyword,
        "cannot be enforced in this model's output format here",
    )
}
