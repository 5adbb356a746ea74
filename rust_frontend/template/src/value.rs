//! JSON to template values.

use minijinja::Value;
use serde_json::Value as Json;

/// Converts JSON. Order of keys is kept; null becomes None, which is not the same as a missing key.
pub(crate) fn from_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(integer), _) => Value::from(integer),
            (None, Some(integer)) => Value::from(integer),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::from(items.iter().map(from_json).collect::<Vec<_>>()),
        Json::Object(fields) => Value::from_pairs(
            fields
                .iter()
                .map(|(key, field)| (key.as_str(), from_json(field))),
        ),
    }
}
