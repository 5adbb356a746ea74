//! What a schema rejects, as a schema: for `not`, `if` and `oneOf`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::disjoint::{ALL, STRING, declared, parts, type_names, type_of};
use super::draft::Draft;
use super::lower::{At, Lowering, any_of, joined};

const MAX_LOOK: usize = 16;

impl<'a> Lowering<'a> {
    /// A schema whose instances are those that `at` rejects. None where that cannot be said.
    pub(super) fn negated(&mut self, at: At<'a>, level: usize) -> Option<Value> {
        self.schemas += 1;
        let map = match at.schema {
            Value::Bool(value) => return Some(Value::Bool(!value)),
            Value::Object(map) if level < MAX_LOOK => map,
            _ => return None,
        };
        if self.draft <= Draft::D7
            && let Some(target) = self.referred(at, map)
        {
            return self.negated(target, level + 1);
        }
        let mut rejected = Vec::new();
        for keyword in map.keys() {
            if self.draft.knows(keyword) {
                rejected.push(self.negated_keyword(at, map, keyword, level)?);
            }
        }
        Some(any_of(rejected))
    }

    fn negated_keyword(
        &mut self,
        at: At<'a>,
        map: &'a Map<String, Value>,
        keyword: &str,
        level: usize,
    ) -> Option<Value> {
        let value = &map[keyword];
        match keyword {
            "type" => other_types(declared(map)),
            "enum" | "const" => other_values(&self.constants(map).ok()??),
            "required" => {
                let names = value
                    .as_array()?
                    .iter()
                    .map(|name| Some(json!({ name.as_str()?: false })));
                let without =
                    names.map(|absent| Some(json!({ "type": "object", "properties": absent? })));
                Some(any_of(without.collect::<Option<Vec<_>>>()?))
            }
            "properties" => {
                let mut options = Vec::new();
                for (name, schema) in value.as_object()? {
                    let wrong = self.negated(at.inner(schema), level + 1)?;
                    if wrong != Value::Bool(false) {
                        options.push(json!({ "type": "object", "required": [name], "properties": { name.as_str(): wrong } }));
                    }
                }
                Some(any_of(options))
            }
            "anyOf" => {
                let all = parts(map, "anyOf").map(|part| self.negated(at.inner(part), level + 1));
                Some(joined(Map::new(), all.collect::<Option<Vec<_>>>()?))
            }
            "allOf" => {
                let all = parts(map, "allOf").map(|part| self.negated(at.inner(part), level + 1));
                Some(any_of(all.collect::<Option<Vec<_>>>()?))
            }
            "not" => self.lower(at.inner(value)).ok(),
            "$ref" => {
                let target = self.referred(at, map)?;
                self.negated(target, level + 1)
            }
            "format"
                if value.as_str().is_some_and(|name| {
                    super::format::lookup(name, self.draft) == super::format::Format::Annotation
                }) =>
            {
                Some(Value::Bool(false))
            }
            bound => beyond(bound, value, self.draft),
        }
    }
}

/// What a bound rejects.
fn beyond(keyword: &str, value: &Value, draft: Draft) -> Option<Value> {
    match keyword {
        // In draft 4 a boolean beside it says whether the bound itself belongs to it.
        "minimum" | "maximum" if draft == Draft::D4 => None,
        "minimum" => Some(json!({ "type": "number", "exclusiveMaximum": value })),
        "maximum" => Some(json!({ "type": "number", "exclusiveMinimum": value })),
        "exclusiveMinimum" if value.is_number() => {
            Some(json!({ "type": "number", "maximum": value }))
        }
        "exclusiveMaximum" if value.is_number() => {
            Some(json!({ "type": "number", "minimum": value }))
        }
        "minLength" => fewer("string", "maxLength", value.as_u64()?),
        "maxLength" => Some(json!({ "type": "string", "minLength": value.as_u64()? + 1 })),
        "minItems" => fewer("array", "maxItems", value.as_u64()?),
        "maxItems" => Some(json!({ "type": "array", "minItems": value.as_u64()? + 1 })),
        "maxProperties" if value.as_u64() == Some(0) => {
            Some(json!({ "type": "object", "minProperties": 1 }))
        }
        "minProperties" if value.as_u64() == Some(1) => {
            Some(json!({ "type": "object", "maxProperties": 0 }))
        }
        _ => None,
    }
}

fn fewer(kind: &str, most: &str, least: u64) -> Option<Value> {
    match least.checked_sub(1) {
        None => Some(Value::Bool(false)),
        Some(value) => Some(json!({ "type": kind, most: value })),
    }
}

fn other_types(types: u8) -> Option<Value> {
    let others = ALL & !types;
    // Fractions without whole numbers have no name.
    if others & 0x0C == 0x08 {
        return None;
    }
    let names = type_names(others);
    Some(if names.is_empty() {
        Value::Bool(false)
    } else {
        json!({ "type": names })
    })
}

/// All values but these.
fn other_values(values: &[Value]) -> Option<Value> {
    let mut types = values.iter().fold(0, |all, value| all | type_of(value));
    if types & 0x60 != 0 {
        return None;
    }
    if types & 0x0C != 0 {
        types |= 0x0C;
    }
    let mut options = vec![other_types(types)?];
    let strings: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
    if !strings.is_empty() {
        options.push(json!({ "type": "string", "pattern": other_strings(&strings) }));
    }
    for flag in [true, false] {
        if types & 2 != 0 && !values.contains(&Value::Bool(flag)) {
            options.push(json!({ "const": flag }));
        }
    }
    let mut numbers: Vec<f64> = values.iter().filter_map(Value::as_f64).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    for (index, value) in numbers.iter().enumerate() {
        let mut between = json!({ "type": "number", "exclusiveMaximum": value });
        if index > 0 {
            between["exclusiveMinimum"] = json!(numbers[index - 1]);
        }
        options.push(between);
    }
    if let Some(last) = numbers.last() {
        options.push(json!({ "type": "number", "exclusiveMinimum": last }));
    }
    debug_assert!(types & STRING == 0 || !strings.is_empty());
    Some(any_of(options))
}

/// The strings to avoid, letter by letter.
#[derive(Default)]
struct Letters {
    next: BTreeMap<char, Letters>,
    ends: bool,
}

/// A pattern for all strings but these.
pub(super) fn other_strings(strings: &[&str]) -> String {
    let mut root = Letters::default();
    for text in strings {
        let mut node = &mut root;
        for letter in text.chars() {
            node = node.next.entry(letter).or_default();
        }
        node.ends = true;
    }
    let mut pattern = String::from("^");
    root.write(&mut pattern);
    pattern.push('$');
    pattern
}

impl Letters {
    fn write(&self, out: &mut String) {
        out.push_str("(?:");
        if !self.ends {
            out.push('|');
        }
        if self.next.is_empty() {
            out.push_str("(?s:.)");
        } else {
            out.push_str("[^");
            for letter in self.next.keys() {
                let _ = write!(out, "\\x{{{:x}}}", u32::from(*letter));
            }
            out.push(']');
        }
        out.push_str("(?s:.*)");
        for (letter, inner) in &self.next {
            let _ = write!(out, "|\\x{{{:x}}}", u32::from(*letter));
            inner.write(out);
        }
        out.push(')');
    }
}
