//! Taking typed fields out of a body. A null is as good as absent; a wrong type or value is a 400 that names the field.

use serde_json::{Map, Value};

use crate::error::ApiError;

/// Quotes at most this many bytes of a wrong value.
const SHOWN: usize = 60;

#[cfg(test)]
thread_local! {
    /// The names of all fields that this thread has asked for.
    pub(crate) static ASKED: std::cell::RefCell<std::collections::BTreeSet<String>> = const {
        std::cell::RefCell::new(std::collections::BTreeSet::new())
    };
}

/// Bodies with no more fields than this are searched from the front: nearly all names that are looked for are not there,
/// which comparing lengths shows sooner than hashing.
const FEW: usize = 24;

/// Finds a field.
pub(crate) fn get<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    if fields.len() > FEW {
        return fields.get(name);
    }
    let found = fields.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| value)
}

/// Takes a field; null counts as absent.
pub(crate) fn take(fields: &mut Map<String, Value>, name: &str) -> Option<Value> {
    #[cfg(test)]
    ASKED.with(|asked| asked.borrow_mut().insert(name.to_owned()));
    let found = if fields.len() > FEW {
        fields.get_mut(name)
    } else {
        let found = fields.iter_mut().find(|(known, _)| *known == name);
        found.map(|(_, value)| value)
    };
    found.map(Value::take).filter(|value| !value.is_null())
}

/// Takes a boolean.
pub(crate) fn boolean(
    fields: &mut Map<String, Value>,
    name: &str,
) -> Result<Option<bool>, ApiError> {
    match take(fields, name) {
        None => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(value)),
        Some(other) => Err(wrong(name, "true or false", &other)),
    }
}

/// Takes a string.
pub(crate) fn string(
    fields: &mut Map<String, Value>,
    name: &str,
) -> Result<Option<String>, ApiError> {
    match take(fields, name) {
        None => Ok(None),
        Some(Value::String(value)) => Ok(Some(value)),
        Some(other) => Err(wrong(name, "a string", &other)),
    }
}

/// Takes an object.
pub(crate) fn object(
    fields: &mut Map<String, Value>,
    name: &str,
) -> Result<Option<Map<String, Value>>, ApiError> {
    match take(fields, name) {
        None => Ok(None),
        Some(Value::Object(value)) => Ok(Some(value)),
        Some(other) => Err(wrong(name, "an object", &other)),
    }
}

/// Takes a list.
pub(crate) fn list(
    fields: &mut Map<String, Value>,
    name: &str,
) -> Result<Option<Vec<Value>>, ApiError> {
    match take(fields, name) {
        None => Ok(None),
        Some(Value::Array(value)) => Ok(Some(value)),
        Some(other) => Err(wrong(name, "a list", &other)),
    }
}

/// Takes a number, which JSON makes finite.
pub(crate) fn number(fields: &mut Map<String, Value>, name: &str) -> Result<Option<f64>, ApiError> {
    let Some(value) = take(fields, name) else {
        return Ok(None);
    };
    match value.as_f64() {
        Some(number) if value.is_number() => Ok(Some(number)),
        _ => Err(wrong(name, "a number", &value)),
    }
}

/// Takes an integer of at least `min`; `range` words what is allowed. 2.0 is no integer here.
pub(crate) fn integer(
    fields: &mut Map<String, Value>,
    name: &str,
    min: i64,
    range: &str,
) -> Result<Option<i64>, ApiError> {
    let Some(value) = take(fields, name) else {
        return Ok(None);
    };
    match value.as_i64() {
        Some(number) if number >= min => Ok(Some(number)),
        _ => Err(wrong(name, range, &value)),
    }
}

/// A 400 that says what the field must be and what came.
pub(crate) fn wrong(name: &str, wanted: &str, got: &Value) -> ApiError {
    ApiError::invalid(
        name,
        format!("'{name}' must be {wanted}; got {}.", shown(got)),
    )
}

/// What sort of value it is, with its article.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The value as it came where it is short, its kind where it is long.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Array(items) if !items.is_empty() => format!("a list of {}", items.len()),
        Value::Object(_) => "an object".to_owned(),
        other => {
            let text = other.to_string();
            if text.len() <= SHOWN {
                text
            } else {
                format!("{} of {} bytes", kind(other), text.len())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_is_found_among_few_and_among_many() {
        for count in [2, FEW, FEW + 1, 10 * FEW] {
            let mut fields: Map<String, Value> = (0..count)
                .map(|each| (each.to_string(), json!(each)))
                .collect();
            let last = (count - 1).to_string();
            assert_eq!(get(&fields, &last), Some(&json!(count - 1)));
            assert_eq!(get(&fields, "absent"), None);
            assert_eq!(take(&mut fields, &last), Some(json!(count - 1)));
            assert_eq!(take(&mut fields, &last), None);
            assert_eq!(take(&mut fields, "absent"), None);
            assert_eq!(fields.len(), count);
        }
    }
}
