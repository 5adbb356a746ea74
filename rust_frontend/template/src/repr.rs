//! Values as Python's `str` and `repr` write them.

use minijinja::Value;
use minijinja::value::{Tuple, ValueKind};

use crate::number;

/// Appends what `{{ value }}` writes.
pub(crate) fn str(out: &mut String, value: &Value) {
    match value.kind() {
        ValueKind::String => out.push_str(value.as_str().unwrap_or_default()),
        ValueKind::Undefined => {}
        _ => repr(out, value),
    }
}

/// Appends a value as it stands inside a container.
pub(crate) fn repr(out: &mut String, value: &Value) {
    match value.kind() {
        ValueKind::String => quoted(out, value.as_str().unwrap_or_default()),
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::Number if !value.is_integer() => {
            number::float(
                out,
                f64::try_from(value.clone()).unwrap_or(f64::NAN),
                "inf",
                "nan",
            );
        }
        ValueKind::Seq if value.downcast_object_ref::<Tuple>().is_some() => {
            out.push('(');
            let count = items(out, value);
            out.push_str(if count == 1 { ",)" } else { ")" });
        }
        ValueKind::Seq => {
            out.push('[');
            items(out, value);
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                repr(out, &key);
                out.push_str(": ");
                repr(out, &value.get_item(&key).unwrap_or_default());
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
}

fn items(out: &mut String, value: &Value) -> usize {
    let mut count = 0;
    for item in value.try_iter().into_iter().flatten() {
        out.push_str(if count > 0 { ", " } else { "" });
        repr(out, &item);
        count += 1;
    }
    count
}

/// A string in quotes: single ones, unless only they occur in it.
fn quoted(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for letter in text.chars() {
        match letter {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            same if same == quote => {
                out.push('\\');
                out.push(same);
            }
            hidden if !printable(hidden) => match u32::from(hidden) {
                code @ ..=0xFF => out.push_str(&format!("\\x{code:02x}")),
                code @ ..=0xFFFF => out.push_str(&format!("\\u{code:04x}")),
                code => out.push_str(&format!("\\U{code:08x}")),
            },
            plain => out.push(plain),
        }
    }
    out.push(quote);
}

/// Whether Python prints a character as it is: all but controls, formats, private and unassigned ones, and spaces other
/// than U+0020. Unassigned characters pass here: to know them takes the whole Unicode table.
fn printable(letter: char) -> bool {
    if letter.is_ascii() {
        return (' '..='~').contains(&letter);
    }
    !(letter.is_control()
        || letter.is_whitespace()
        || matches!(letter,
            '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}' | '\u{891}' | '\u{8e2}'
            | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{e000}'..='\u{f8ff}'
            | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}' | '\u{f0000}'..='\u{10ffff}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_read_as_in_python() {
        let map = Value::from_pairs([
            ("a", Value::from(1)),
            ("it's", Value::from(())),
            ("n", Value::from(1e16)),
        ]);
        let value = Value::from(vec![
            Value::from("x\n'\""),
            Value::from(true),
            map,
            Value::from("é\u{200d}"),
        ]);
        let mut out = String::new();
        str(&mut out, &value);
        assert_eq!(
            out,
            r#"['x\n\'"', True, {'a': 1, "it's": None, 'n': 1e+16}, 'é\u200d']"#
        );
    }
}
