//! Python values to JSON without a text between them, where they are of the plain kinds.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use serde_json::{Map, Number, Value};

/// How deep lists and dicts may nest.
const DEEPEST: usize = 100;

/// What `json.dumps` and reading it again would give. `None` for values that are better left to it: of other types, or
/// such that it may refuse them.
pub(crate) fn plain(value: &Bound<'_, PyAny>, depth: usize) -> Option<Value> {
    if depth > DEEPEST {
        return None;
    }
    if let Ok(text) = value.cast_exact::<PyString>() {
        return text.to_str().ok().map(Value::from);
    }
    if let Ok(fields) = value.cast_exact::<PyDict>() {
        let mut map = Map::with_capacity(fields.len());
        for (name, field) in fields {
            let name = name
                .cast_exact::<PyString>()
                .ok()?
                .to_str()
                .ok()?
                .to_owned();
            map.insert(name, plain(&field, depth + 1)?);
        }
        return Some(Value::Object(map));
    }
    if let Ok(items) = value.cast_exact::<PyList>() {
        let items = items.iter().map(|item| plain(&item, depth + 1));
        return items.collect::<Option<Vec<_>>>().map(Value::Array);
    }
    if value.is_none() {
        return Some(Value::Null);
    }
    if let Ok(flag) = value.cast_exact::<PyBool>() {
        return Some(Value::Bool(flag.is_true()));
    }
    if let Ok(integer) = value.cast_exact::<PyInt>() {
        return integer.extract::<i64>().ok().map(Value::from);
    }
    if let Ok(float) = value.cast_exact::<PyFloat>() {
        return Number::from_f64(float.value()).map(Value::Number);
    }
    if let Ok(items) = value.cast_exact::<PyTuple>() {
        let items = items.iter().map(|item| plain(&item, depth + 1));
        return items.collect::<Option<Vec<_>>>().map(Value::Array);
    }
    None
}

/// Bytes of the texts in a value.
pub(crate) fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(fields) => fields.values().map(weight).sum(),
        _ => 0,
    }
}
