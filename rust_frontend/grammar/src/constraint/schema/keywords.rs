//! Keywords that look at one value: types, constants, numbers, strings, arrays.

use serde_json::{Map, Value, json};

use super::draft::Draft;
use super::format::{Format, MAX_HOSTNAME, lookup};
use super::lower::{At, Lowering, any_of, shown};
use crate::constraint::error::ConstraintError;

const TYPES: [&str; 7] = [
    "null", "boolean", "integer", "number", "string", "array", "object",
];
/// Whole numbers beyond it are not all doubles, as which the compiler takes bounds.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
/// Orders of so many different items are written out for `uniqueItems`.
const MAX_DISTINCT: usize = 4;

type Done = Result<(), ConstraintError>;

impl<'a> Lowering<'a> {
    /// Lower type, enum, const and the keywords of numbers and strings.
    pub(super) fn simple(
        &mut self,
        _at: At<'a>,
        map: &'a Map<String, Value>,
        out: &mut Map<String, Value>,
        also: &mut Vec<Value>,
    ) -> Done {
        if let Some(value) = map.get("type") {
            check_type(value)?;
            out.insert("type".to_owned(), value.clone());
        }
        if let Some(values) = self.constants(map)? {
            also.push(json!({ "enum": values }));
        }
        self.numbers(map, out)?;
        self.strings(map, out, also)
    }

    /// The values of `enum` and `const`, where there are any.
    pub(super) fn constants(
        &self,
        map: &Map<String, Value>,
    ) -> Result<Option<Vec<Value>>, ConstraintError> {
        let listed = match map.get("enum") {
            None => None,
            Some(Value::Array(values)) if values.is_empty() => {
                return Err(ConstraintError::new(
                    "enum",
                    "must not be empty: nothing satisfies it",
                ));
            }
            Some(Value::Array(values)) => Some(values.clone()),
            Some(other) => return Err(wrong("enum", "a list of values", other)),
        };
        let single = map.get("const").filter(|_| self.draft.knows("const"));
        let values = match (listed, single) {
            (None, None) => return Ok(None),
            (Some(values), None) => values,
            (None, Some(value)) => vec![value.clone()],
            (Some(values), Some(value)) => {
                values.into_iter().filter(|one| equal(one, value)).collect()
            }
        };
        let keyword = if map.contains_key("enum") {
            "enum"
        } else {
            "const"
        };
        if values.is_empty() {
            return Err(ConstraintError::new(
                keyword,
                "nothing satisfies both enum and const",
            ));
        }
        if values.iter().any(|value| !exact(value)) {
            let message = "whole numbers beyond 2^53 are not supported";
            return Err(ConstraintError::new(keyword, message));
        }
        Ok(Some(values))
    }

    fn numbers(&self, map: &Map<String, Value>, out: &mut Map<String, Value>) -> Done {
        let integer = map.get("type").is_some_and(|kind| kind == "integer");
        for (bound, exclusive) in [
            ("minimum", "exclusiveMinimum"),
            ("maximum", "exclusiveMaximum"),
        ] {
            let inclusive = number(map, bound)?;
            let strict = match map.get(exclusive) {
                None => None,
                Some(Value::Bool(flag)) if self.draft == Draft::D4 => {
                    if inclusive.is_none() {
                        return Err(ConstraintError::new(
                            exclusive,
                            format!("needs {bound} beside it"),
                        ));
                    }
                    flag.then_some(()).and(inclusive)
                }
                Some(_) if self.draft == Draft::D4 => {
                    return Err(wrong(exclusive, "a boolean (draft 4)", &map[exclusive]));
                }
                Some(_) => number(map, exclusive)?,
            };
            let lower = bound == "minimum";
            let draft_4_strict = self.draft == Draft::D4 && strict.is_some();
            if let Some(value) = inclusive.filter(|_| !draft_4_strict) {
                out.insert(bound.to_owned(), rounded(value, lower, integer));
            }
            if let Some(value) = strict {
                out.insert(exclusive.to_owned(), rounded(value, lower, integer));
            }
        }
        if let Some(value) = number(map, "multipleOf")? {
            if value.as_f64().is_none_or(|value| value <= 0.0) {
                return Err(wrong("multipleOf", "a number above 0", value));
            }
            out.insert("multipleOf".to_owned(), value.clone());
        }
        Ok(())
    }

    fn strings(
        &self,
        map: &Map<String, Value>,
        out: &mut Map<String, Value>,
        also: &mut Vec<Value>,
    ) -> Done {
        for keyword in ["minLength", "maxLength"] {
            if let Some(value) = count(map, keyword)? {
                if value > u64::from(u32::MAX >> 1) {
                    // No output is so long: as a maximum it says nothing.
                    if keyword == "minLength" {
                        return Err(ConstraintError::new(
                            keyword,
                            format!("{value} is too much"),
                        ));
                    }
                    continue;
                }
                out.insert(keyword.to_owned(), value.into());
            }
        }
        match map.get("pattern") {
            None => {}
            Some(Value::String(pattern)) => {
                out.insert("pattern".to_owned(), pattern.clone().into());
            }
            Some(other) => return Err(wrong("pattern", "a regular expression", other)),
        }
        let Some(format) = map.get("format") else {
            return Ok(());
        };
        let Some(name) = format.as_str() else {
            return Err(wrong("format", "a string", format));
        };
        match lookup(name, self.draft) {
            Format::Annotation => {}
            Format::Pattern(pattern) => {
                let mut schema = json!({ "pattern": format!("^(?:{pattern})$") });
                if name == "hostname" {
                    schema["maxLength"] = MAX_HOSTNAME.into();
                }
                also.push(schema);
            }
            Format::Unsupported => {
                return Err(ConstraintError::new(
                    "format",
                    format!("{name:?} is not supported"),
                ));
            }
        }
        Ok(())
    }

    /// Lower the keywords of arrays.
    pub(super) fn arrays(
        &mut self,
        at: At<'a>,
        map: &'a Map<String, Value>,
        out: &mut Map<String, Value>,
        also: &mut Vec<Value>,
    ) -> Done {
        for keyword in ["minItems", "maxItems"] {
            if let Some(value) = count(map, keyword)? {
                out.insert(keyword.to_owned(), value.into());
            }
        }
        let (prefix, items) = self.item_schemas(map)?;
        if let Some((keyword, schemas)) = prefix {
            let lowered = schemas.iter().enumerate().map(|(index, schema)| {
                self.under(at, schema, &index.to_string())
                    .map_err(|error| error.within(keyword))
            });
            let lowered = lowered.collect::<Result<Vec<_>, _>>()?;
            out.insert("prefixItems".to_owned(), Value::Array(lowered));
        }
        if let Some((keyword, schema)) = items {
            let lowered = self.under(at, schema, keyword)?;
            out.insert("items".to_owned(), lowered);
        }
        if self.draft.knows("unevaluatedItems") && map.contains_key("unevaluatedItems") {
            return Err(ConstraintError::new("unevaluatedItems", "is not supported"));
        }
        let none_needed = map.get("minContains").and_then(Value::as_u64) == Some(0)
            && !map.contains_key("maxContains");
        if self.draft.knows("contains") && map.contains_key("contains") && !none_needed {
            return Err(ConstraintError::new("contains", "is not supported"));
        }
        match map.get("uniqueItems") {
            None | Some(Value::Bool(false)) => Ok(()),
            Some(Value::Bool(true)) => self.unique(at, map, also),
            Some(other) => Err(wrong("uniqueItems", "a boolean", other)),
        }
    }

    /// The schemas of the first items and of the others, with the keywords they stand under.
    #[expect(clippy::type_complexity, reason = "two optional pairs")]
    fn item_schemas(
        &self,
        map: &'a Map<String, Value>,
    ) -> Result<
        (
            Option<(&'static str, &'a Vec<Value>)>,
            Option<(&'static str, &'a Value)>,
        ),
        ConstraintError,
    > {
        let items = map.get("items");
        if self.draft >= Draft::D2020 {
            let prefix = match map.get("prefixItems") {
                None => None,
                Some(Value::Array(schemas)) => Some(("prefixItems", schemas)),
                Some(other) => return Err(wrong("prefixItems", "a list of schemas", other)),
            };
            if let Some(Value::Array(_)) = items {
                let message = "must be a schema; draft 2020-12 has prefixItems for a list";
                return Err(ConstraintError::new("items", message));
            }
            return Ok((prefix, items.map(|schema| ("items", schema))));
        }
        Ok(match items {
            Some(Value::Array(schemas)) => (
                Some(("items", schemas)),
                map.get("additionalItems")
                    .map(|schema| ("additionalItems", schema)),
            ),
            other => (None, other.map(|schema| ("items", schema))),
        })
    }

    /// Lower `uniqueItems`: no two items, or few values whose orders are written out.
    fn unique(&mut self, at: At<'a>, map: &'a Map<String, Value>, also: &mut Vec<Value>) -> Done {
        let most = map.get("maxItems").and_then(Value::as_u64);
        if most.is_some_and(|most| most <= 1) {
            return Ok(());
        }
        let values = map
            .get("items")
            .and_then(|items| self.finite(at.inner(items)));
        let Some(values) = values.filter(|values| values.len() <= MAX_DISTINCT) else {
            let message = format!(
                "is supported where maxItems is at most 1 or items is an enum of at most {MAX_DISTINCT} values"
            );
            return Err(ConstraintError::new("uniqueItems", message));
        };
        let mut orders = vec![Vec::new()];
        let mut next = 0;
        while next < orders.len() {
            for value in &values {
                if !orders[next].contains(value) {
                    let mut longer: Vec<Value> = orders[next].clone();
                    longer.push(value.clone());
                    orders.push(longer);
                }
            }
            next += 1;
        }
        let other = json!({ "type": ["null", "boolean", "number", "string", "object"] });
        let options = orders.into_iter().map(|order| {
            let consts: Vec<Value> = order.iter().map(|value| json!({ "const": value })).collect();
            json!({ "type": "array", "prefixItems": consts, "items": false, "minItems": order.len() })
        });
        also.push(any_of(options.chain([other]).collect()));
        Ok(())
    }
}

fn check_type(value: &Value) -> Done {
    let known = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
    let fits = match value {
        Value::Array(names) => !names.is_empty() && names.iter().all(known),
        one => known(one),
    };
    if fits {
        return Ok(());
    }
    Err(wrong(
        "type",
        &format!("one of {}, or a list of them", TYPES.join(", ")),
        value,
    ))
}

/// JSON Schema's equality: numbers by value.
pub(super) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(key, value)| right.get(key).is_some_and(|other| equal(value, other)))
        }
        _ => left == right,
    }
}

fn exact(value: &Value) -> bool {
    match value {
        Value::Number(number) => number
            .as_f64()
            .is_some_and(|value| value.fract() != 0.0 || value.abs() <= MAX_EXACT),
        Value::Array(items) => items.iter().all(exact),
        Value::Object(map) => map.values().all(exact),
        _ => true,
    }
}

/// A bound as a double. One that is none is rounded inward: fewer values pass, never a wrong one.
fn rounded(value: &Value, lower: bool, integer: bool) -> Value {
    let Some(double) = value
        .as_f64()
        .filter(|double| integer && double.abs() > MAX_EXACT)
    else {
        return value.clone();
    };
    let inward = if lower {
        double.next_up()
    } else {
        double.next_down()
    };
    // The limits of the compiler's integers.
    json!(inward.clamp(-9_223_372_036_854_774_784.0, 9_223_372_036_854_774_784.0))
}

fn number<'m>(
    map: &'m Map<String, Value>,
    keyword: &str,
) -> Result<Option<&'m Value>, ConstraintError> {
    match map.get(keyword) {
        None => Ok(None),
        Some(value @ Value::Number(_)) => Ok(Some(value)),
        Some(other) => Err(wrong(keyword, "a number", other)),
    }
}

/// A whole number of at least 0; one that is written as `2.0` counts.
pub(super) fn count(
    map: &Map<String, Value>,
    keyword: &str,
) -> Result<Option<u64>, ConstraintError> {
    let Some(value) = map.get(keyword) else {
        return Ok(None);
    };
    let whole = value.as_u64().or_else(|| {
        let double = value
            .as_f64()
            .filter(|double| double.fract() == 0.0 && (0.0..MAX_EXACT).contains(double))?;
        format!("{double}").parse().ok()
    });
    whole
        .map(Some)
        .ok_or_else(|| wrong(keyword, "a whole number of at least 0", value))
}

pub(super) fn wrong(keyword: &str, wanted: &str, got: &Value) -> ConstraintError {
    ConstraintError::new(keyword, format!("must be {wanted}; got {}", shown(got)))
}
