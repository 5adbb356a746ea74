//! What is known of a schema without enforcing it: its types, its values, and whether two schemas share an instance.

use serde_json::{Map, Value};

use super::draft::Draft;
use super::keywords::equal;
use super::lower::{At, Lowering};

/// References and combinations are followed so deep.
const MAX_LOOK: usize = 24;

/// Sets of types; `number` is both whole numbers and fractions.
pub(super) type Types = u8;
pub(super) const ALL: Types = 0x7F;
pub(super) const STRING: Types = 0x10;
pub(super) const OBJECT: Types = 0x40;
const NUMBERS: Types = 0x0C;

/// The names of a set of types; fractions alone have none.
pub(super) fn type_names(types: Types) -> Vec<&'static str> {
    let mut names = Vec::new();
    for (bit, name) in [
        (1, "null"),
        (2, "boolean"),
        (STRING, "string"),
        (0x20, "array"),
        (OBJECT, "object"),
    ] {
        if types & bit != 0 {
            names.push(name);
        }
    }
    if types & NUMBERS == NUMBERS {
        names.push("number");
    } else if types & 4 != 0 {
        names.push("integer");
    }
    names
}

/// The set that a type name stands for.
pub(super) fn types_of_name(name: &str) -> Types {
    match name {
        "null" => 1,
        "boolean" => 2,
        "integer" => 4,
        "number" => NUMBERS,
        "string" => STRING,
        "array" => 0x20,
        "object" => OBJECT,
        _ => 0,
    }
}

pub(super) fn type_of(value: &Value) -> Types {
    match value {
        Value::Null => 1,
        Value::Bool(_) => 2,
        Value::Number(number) => {
            if number.as_f64().is_some_and(|value| value.fract() == 0.0) {
                4
            } else {
                8
            }
        }
        Value::String(_) => STRING,
        Value::Array(_) => 0x20,
        Value::Object(_) => OBJECT,
    }
}

/// The set that `type` asks for.
pub(super) fn declared(map: &Map<String, Value>) -> Types {
    match map.get("type") {
        None => ALL,
        Some(Value::Array(names)) => names
            .iter()
            .filter_map(Value::as_str)
            .fold(0, |all, name| all | types_of_name(name)),
        Some(one) => one.as_str().map_or(ALL, types_of_name),
    }
}

impl<'a> Lowering<'a> {
    /// A superset of the types of a schema's instances.
    pub(super) fn types(&self, at: At<'a>) -> Types {
        let map = match at.schema {
            Value::Bool(false) => return 0,
            Value::Object(map) if at.depth < MAX_LOOK + 96 => map,
            _ => return ALL,
        };
        if at.depth > MAX_LOOK && map.contains_key("$ref") {
            return ALL;
        }
        if let Some(target) = self.referred(at, map)
            && self.draft <= Draft::D7
        {
            return self.types(target);
        }
        let mut types = declared(map);
        if let Ok(Some(values)) = self.constants(map) {
            types &= values.iter().fold(0, |all, value| all | type_of(value));
        }
        if let Some(target) = self.referred(at, map) {
            types &= self.types(target);
        }
        for part in parts(map, "allOf") {
            types &= self.types(at.inner(part));
        }
        for keyword in ["anyOf", "oneOf"] {
            if map.contains_key(keyword) {
                types &= parts(map, keyword).fold(0, |all, part| all | self.types(at.inner(part)));
            }
        }
        types
    }

    /// All values that a schema can have, where they are few and listed.
    pub(super) fn finite(&self, at: At<'a>) -> Option<Vec<Value>> {
        let map = at.schema.as_object().filter(|_| at.depth < MAX_LOOK + 96)?;
        if let Some(target) = self.referred(at, map) {
            return if at.depth > MAX_LOOK {
                None
            } else {
                self.finite(target)
            };
        }
        if let Ok(Some(values)) = self.constants(map) {
            let types = declared(map);
            return Some(
                values
                    .into_iter()
                    .filter(|value| types & type_of(value) != 0)
                    .collect(),
            );
        }
        if declared(map) == 2 {
            return Some(vec![Value::Bool(true), Value::Bool(false)]);
        }
        if declared(map) == 1 {
            return Some(vec![Value::Null]);
        }
        parts(map, "allOf").find_map(|part| self.finite(at.inner(part)))
    }

    /// Whether it is certain that no value is an instance of both.
    pub(super) fn disjoint(&self, left: At<'a>, right: At<'a>) -> bool {
        if left.depth > MAX_LOOK || right.depth > MAX_LOOK {
            return false;
        }
        let shared = self.types(left) & self.types(right);
        if shared == 0 {
            return true;
        }
        if let (Some(mine), Some(theirs)) = (self.finite(left), self.finite(right)) {
            return !mine
                .iter()
                .any(|one| theirs.iter().any(|other| equal(one, other)));
        }
        for (one, other) in [(left, right), (right, left)] {
            let Some(map) = one.schema.as_object() else {
                continue;
            };
            if let Some(target) = self.referred(one, map) {
                let apart = self.disjoint(target, other);
                if apart || self.draft <= Draft::D7 {
                    return apart;
                }
            }
            if parts(map, "allOf").any(|part| self.disjoint(one.inner(part), other)) {
                return true;
            }
            for keyword in ["anyOf", "oneOf"] {
                if map.contains_key(keyword)
                    && parts(map, keyword).all(|part| self.disjoint(one.inner(part), other))
                {
                    return true;
                }
            }
        }
        match (left.schema.as_object(), right.schema.as_object()) {
            (Some(mine), Some(theirs)) => {
                (shared & !NUMBERS == 0 && ranges_apart(mine, theirs, self.draft))
                    || (shared == OBJECT && self.objects_apart(left, mine, right, theirs))
            }
            _ => false,
        }
    }

    /// Whether a key that one of two objects must have keeps them apart.
    fn objects_apart(
        &self,
        left: At<'a>,
        mine: &'a Map<String, Value>,
        right: At<'a>,
        theirs: &'a Map<String, Value>,
    ) -> bool {
        let required = |map: &'a Map<String, Value>| {
            map.get("required")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
        };
        required(mine).chain(required(theirs)).any(|key| {
            match (property(mine, key), property(theirs, key)) {
                (Property::None, _) | (_, Property::None) => true,
                (Property::Schema(one), Property::Schema(other)) => {
                    self.disjoint(left.inner(one), right.inner(other))
                }
                _ => false,
            }
        })
    }

    /// What a schema's `$ref` names.
    pub(super) fn referred(&self, at: At<'a>, map: &'a Map<String, Value>) -> Option<At<'a>> {
        self.target(at, map.get("$ref")?).ok()
    }
}

/// What an object schema says of one key.
enum Property<'a> {
    Schema(&'a Value),
    /// It may not be there.
    None,
    Unknown,
}

fn property<'a>(map: &'a Map<String, Value>, key: &str) -> Property<'a> {
    if let Some(schema) = map
        .get("properties")
        .and_then(|properties| properties.get(key))
    {
        return Property::Schema(schema);
    }
    let closed = map.get("additionalProperties") == Some(&Value::Bool(false));
    if closed && !map.contains_key("patternProperties") {
        return Property::None;
    }
    Property::Unknown
}

fn ranges_apart(left: &Map<String, Value>, right: &Map<String, Value>, draft: Draft) -> bool {
    let bound = |map: &Map<String, Value>, name: &str| map.get(name).and_then(Value::as_f64);
    let above = |low: &Map<String, Value>, high: &Map<String, Value>| {
        let most = bound(low, "maximum");
        let below = bound(low, "exclusiveMaximum").filter(|_| draft > Draft::D4);
        let least = bound(high, "minimum");
        let over = bound(high, "exclusiveMinimum").filter(|_| draft > Draft::D4);
        most.zip(least).is_some_and(|(most, least)| most < least)
            || most.zip(over).is_some_and(|(most, over)| most <= over)
            || below
                .zip(least)
                .is_some_and(|(below, least)| below <= least)
            || below.zip(over).is_some_and(|(below, over)| below <= over)
    };
    above(left, right) || above(right, left)
}

/// The schemas of a list.
pub(super) fn parts<'m>(
    map: &'m Map<String, Value>,
    keyword: &str,
) -> impl Iterator<Item = &'m Value> {
    map.get(keyword)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}
