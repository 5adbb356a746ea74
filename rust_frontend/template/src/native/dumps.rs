//! JSON as Python's `json.dumps(value, ensure_ascii=False)` writes it.

use serde_json::Value;

use crate::number;

/// With a space behind commas and colons.
pub(super) fn spaced(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value, (", ", ": "), false);
    out
}

/// Without spaces, and the keys of each object in order.
pub(super) fn sorted(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value, (",", ":"), true);
    out
}

fn write(out: &mut String, value: &Value, (item, colon): (&str, &str), sort: bool) {
    match value {
        Value::Number(number) if number.is_f64() => {
            number::float(out, number.as_f64().unwrap_or(f64::NAN), "Infinity", "NaN");
        }
        Value::String(text) => string(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, value) in items.iter().enumerate() {
                out.push_str(if index > 0 { item } else { "" });
                write(out, value, (item, colon), sort);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            if sort {
                fields.sort_by_key(|(key, _)| *key);
            }
            out.push('{');
            for (index, (key, value)) in fields.into_iter().enumerate() {
                out.push_str(if index > 0 { item } else { "" });
                string(out, key);
                out.push_str(colon);
                write(out, value, (item, colon), sort);
            }
            out.push('}');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

fn string(out: &mut String, text: &str) {
    crate::json::string(out, text, false);
}
