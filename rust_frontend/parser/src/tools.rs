//! The tools of a request, as far as the parser needs them: names, and the types of parameters.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

/// How deep references and alternatives of a schema are followed.
const MAX_DEPTH: usize = 8;

/// How many parts of one tool's schema are looked at: alternatives that refer to themselves multiply.
const MAX_PARTS: usize = 20_000;

/// The JSON types that a schema admits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Types(u8);

impl Types {
    /// Text.
    pub const STRING: Self = Self(1);
    /// Whole numbers.
    pub const INTEGER: Self = Self(2);
    /// Numbers.
    pub const NUMBER: Self = Self(4);
    /// Truth values.
    pub const BOOLEAN: Self = Self(8);
    /// Objects.
    pub const OBJECT: Self = Self(16);
    /// Lists.
    pub const ARRAY: Self = Self(32);
    /// Null.
    pub const NULL: Self = Self(64);

    /// Whether nothing is known.
    pub fn unknown(self) -> bool {
        self.0 == 0
    }

    /// Whether all of `other` are admitted.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    fn named(name: &str) -> Self {
        match name {
            "string" | "str" | "text" | "enum" => Self::STRING,
            "integer" | "int" => Self::INTEGER,
            "number" | "float" | "double" => Self::NUMBER,
            "boolean" | "bool" => Self::BOOLEAN,
            "object" | "dict" => Self::OBJECT,
            "array" | "list" | "tuple" => Self::ARRAY,
            "null" => Self::NULL,
            _ => Self::default(),
        }
    }

    fn of_value(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Number(number) if number.is_f64() => Self::NUMBER,
            Value::Number(_) => Self::INTEGER,
            Value::String(_) => Self::STRING,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }
}

/// Parameters of one tool.
#[derive(Debug, Clone, Default)]
pub struct Parameters {
    types: HashMap<String, Types>,
    schema: Arc<Value>,
}

impl Parameters {
    /// Return the types of a parameter; none where the tool has no such parameter.
    pub fn types(&self, name: &str) -> Option<Types> {
        self.types.get(name).copied()
    }

    /// Return the whole schema.
    pub(crate) fn schema(&self) -> &Value {
        &self.schema
    }

    /// Whether the schema names any parameter.
    pub fn any(&self) -> bool {
        !self.types.is_empty()
    }
}

/// The tools of a request. The default knows nothing: every name passes and no parameter has a type.
#[derive(Debug, Clone, Default)]
pub struct Tools {
    tools: Option<Arc<HashMap<String, Parameters>>>,
}

impl Tools {
    /// Read a request's `tools`; what is not a function is passed over.
    pub fn from_json(tools: &[Value]) -> Self {
        let read = tools.iter().filter_map(|tool| {
            let function = tool.get("function").unwrap_or(tool);
            let name = function.get("name")?.as_str()?.to_owned();
            let schema = function
                .get("parameters")
                .or_else(|| function.get("input_schema"));
            Some((name, schema.map(parameters).unwrap_or_default()))
        });
        Self {
            tools: Some(Arc::new(read.collect())),
        }
    }

    /// Whether a call of this name can be one.
    pub fn knows(&self, name: &str) -> bool {
        self.tools
            .as_ref()
            .is_none_or(|tools| tools.contains_key(name))
    }

    /// Return the parameters of a tool.
    pub fn parameters(&self, name: &str) -> Option<&Parameters> {
        self.tools.as_ref()?.get(name)
    }
}

fn parameters(schema: &Value) -> Parameters {
    let mut read = Parameters {
        schema: Arc::new(schema.clone()),
        ..Parameters::default()
    };
    let mut left = MAX_PARTS;
    collect(schema, schema, &mut read, 0, &mut left);
    read
}

/// Takes one part of the budget; false where it is used up or the schema is too deep.
fn spend(left: &mut usize, depth: usize) -> bool {
    let more = *left > 0 && depth <= MAX_DEPTH;
    *left = left.saturating_sub(1);
    more
}

fn collect(root: &Value, schema: &Value, read: &mut Parameters, depth: usize, left: &mut usize) {
    if !spend(left, depth) {
        return;
    }
    let schema = follow(root, schema);
    for (name, property) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let mut types = Types::default();
        types_of(root, property, &mut types, depth, left);
        read.types.insert(name.clone(), types);
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for part in schema
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            collect(root, part, read, depth + 1, left);
        }
    }
}

fn types_of(root: &Value, schema: &Value, types: &mut Types, depth: usize, left: &mut usize) {
    if !spend(left, depth) {
        return;
    }
    let schema = follow(root, schema);
    match schema.get("type") {
        Some(Value::String(name)) => types.add(Types::named(name)),
        Some(Value::Array(names)) => {
            names
                .iter()
                .filter_map(Value::as_str)
                .for_each(|name| types.add(Types::named(name)));
        }
        _ => {}
    }
    if types.unknown() {
        let values = schema
            .get("enum")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        values
            .chain(schema.get("const"))
            .for_each(|value| types.add(Types::of_value(value)));
        if schema.get("properties").is_some() {
            types.add(Types::OBJECT);
        } else if schema.get("items").is_some() {
            types.add(Types::ARRAY);
        }
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for part in schema
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            types_of(root, part, types, depth + 1, left);
        }
    }
    if schema.get("nullable") == Some(&Value::Bool(true)) {
        types.add(Types::NULL);
    }
}

/// Return the types that a schema inside of a document admits.
pub(crate) fn types_in(root: &Value, schema: &Value) -> Types {
    let mut types = Types::default();
    types_of(root, schema, &mut types, 0, &mut { MAX_PARTS });
    types
}

/// Return the schema of a field of an object, or of the items of a list; null where nothing is said.
pub(crate) fn inner<'a>(root: &'a Value, schema: &'a Value, field: Option<&str>) -> &'a Value {
    let schema = follow(root, schema);
    let parts = ["anyOf", "oneOf", "allOf"]
        .iter()
        .filter_map(|key| schema.get(key)?.as_array());
    let own = match field {
        Some(name) => schema
            .get("properties")
            .and_then(|properties| properties.get(name))
            .or_else(|| schema.get("additionalProperties")),
        None => schema.get("items"),
    };
    let parts = || {
        parts
            .flatten()
            .map(|part| inner_part(root, part, field))
            .find(|found| !found.is_null())
    };
    own.or_else(parts).unwrap_or(&Value::Null)
}

fn inner_part<'a>(root: &'a Value, part: &'a Value, field: Option<&str>) -> &'a Value {
    let part = follow(root, part);
    let found = match field {
        Some(name) => part
            .get("properties")
            .and_then(|properties| properties.get(name)),
        None => part.get("items"),
    };
    found.unwrap_or(&Value::Null)
}

/// Follow `$ref` within the document, bounded.
fn follow<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut at = schema;
    for _ in 0..MAX_DEPTH {
        let Some(pointer) = at.get("$ref").and_then(Value::as_str) else {
            break;
        };
        match pointer
            .strip_prefix('#')
            .and_then(|pointer| root.pointer(pointer))
        {
            Some(next) => at = next,
            None => break,
        }
    }
    at
}

/// Read an object; none for any other text.
pub(crate) fn object(text: &str) -> Option<Map<String, Value>> {
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => Some(map),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_that_refers_to_itself_many_times_ends() {
        let many: Vec<Value> = (0..50).map(|_| json!({"$ref": "#/$defs/a"})).collect();
        let schema = json!({"$defs": {"a": {"anyOf": many}}, "properties": {"x": {"$ref": "#/$defs/a"}, "y": {"type": "string"}}});
        let tool = json!({"type": "function", "function": {"name": "f", "parameters": schema}});
        let begun = std::time::Instant::now();
        let tools = Tools::from_json(&[tool]);
        assert!(begun.elapsed() < std::time::Duration::from_secs(2));
        assert!(tools.knows("f"));
    }
}
