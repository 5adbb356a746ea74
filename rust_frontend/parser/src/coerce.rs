//! Text of a value to JSON, by the types that the schema admits.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::codec_python::literal;
use crate::tools::Types;

/// Return the text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

/// Append the inside of a JSON string for the text.
pub(crate) fn escape(text: &str, out: &mut String) {
    if !text
        .bytes()
        .any(|byte| byte < b' ' || byte == b'"' || byte == b'\\')
    {
        out.push_str(text);
        return;
    }
    let quoted = quoted(text);
    out.push_str(&quoted[1..quoted.len() - 1]);
}

/// Return JSON for the text of a value. What fits no type of the schema becomes a string: never an error.
///
/// `free` says that without a schema, text that is JSON is taken as JSON.
pub(crate) fn coerce(text: &str, types: Types, free: bool) -> String {
    let trimmed = text.trim();
    if types.unknown() {
        // The model's own spelling, in which numbers keep their digits.
        if free && is_json(trimmed) {
            return trimmed.to_owned();
        }
        return quoted(text);
    }
    if types.has(Types::NULL) && matches!(trimmed, "null" | "None") {
        return "null".to_owned();
    }
    scalar(trimmed, types)
        .or_else(|| composite(trimmed, types))
        .unwrap_or_else(|| quoted(text))
}

/// Whether a text is one JSON value; numbers may be too large for a double.
pub(crate) fn is_json(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
}

/// Whether a text is a number of JSON.
pub(crate) fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) && is_json(text)
}

fn scalar(text: &str, types: Types) -> Option<String> {
    if types.has(Types::BOOLEAN) {
        for (name, json) in [("true", "true"), ("false", "false")] {
            if text.eq_ignore_ascii_case(name) {
                return Some(json.to_owned());
            }
        }
    }
    let number = types.has(Types::NUMBER);
    if !number && !types.has(Types::INTEGER) {
        return None;
    }
    let digits = text.strip_prefix('+').unwrap_or(text);
    if number && is_number(digits) {
        return Some(digits.to_owned());
    }
    match serde_json::from_str::<Value>(digits) {
        // The model's own spelling: numbers keep all their digits.
        Ok(Value::Number(_)) if !digits.contains(['.', 'e', 'E']) => Some(digits.to_owned()),
        Ok(Value::Number(value)) => whole(value.as_f64()?),
        // Models write zeros in front; JSON does not.
        Err(_) if !digits.contains(['\'', '"']) => literal(digits).filter(|json| {
            serde_json::from_str::<Value>(json).is_ok_and(|value| value.is_i64() || value.is_u64())
        }),
        _ => None,
    }
}

fn whole(value: f64) -> Option<String> {
    // Up to 2^53 every whole number is exact.
    (value.fract() == 0.0 && value.abs() < 9.0e15).then(|| format!("{value:.0}"))
}

fn composite(text: &str, types: Types) -> Option<String> {
    let fits = |json: &str| {
        (json.starts_with('{') && types.has(Types::OBJECT))
            || (json.starts_with('[') && types.has(Types::ARRAY))
    };
    if !types.has(Types::OBJECT) && !types.has(Types::ARRAY) {
        return None;
    }
    if fits(text) && is_json(text) {
        return Some(text.to_owned());
    }
    literal(text).filter(|json| fits(json))
}
