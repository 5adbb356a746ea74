//! `tojson` as Transformers defines it: `json.dumps`, byte for byte, and nothing escaped for HTML.

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use crate::number;

/// How to write.
struct Layout {
    ascii: bool,
    /// One level of indentation; `None`: all on one line.
    indent: Option<String>,
    item: String,
    key: String,
    sort: bool,
}

/// The filter: `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`, also by position.
pub(crate) fn tojson(
    state: &State,
    value: &Value,
    given: Rest<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let argument = |index: usize, name: &str| -> Result<Option<Value>, Error> {
        let named: Option<Value> = kwargs.get(name)?;
        Ok(given
            .get(index)
            .cloned()
            .or(named)
            .filter(|value| !value.is_none()))
    };
    let ascii = argument(0, "ensure_ascii")?.is_some_and(|value| value.is_true());
    let indent = argument(1, "indent")?.map(indentation).transpose()?;
    let separators = argument(2, "separators")?;
    let sort = argument(3, "sort_keys")?.is_some_and(|value| value.is_true());
    kwargs.assert_all_used()?;
    if given.len() > 4 {
        return Err(failure(format!(
            "tojson takes 4 arguments; got {}",
            given.len()
        )));
    }
    let item = if indent.is_some() { "," } else { ", " };
    let (item, key) = separators.map_or_else(
        || Ok((item.to_owned(), ": ".to_owned())),
        |pair| pair_of(&pair),
    )?;
    let mut out = String::new();
    write(
        &mut out,
        value,
        &Layout {
            ascii,
            indent,
            item,
            key,
            sort,
        },
        0,
    )?;
    state.consume_fuel(out.len() as u64 / 64)?;
    Ok(Value::from(out))
}

/// An indentation is a number of spaces or the text itself.
pub(crate) fn indentation(value: Value) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.to_owned());
    }
    let count = if let Ok(flag) = bool::try_from(value.clone()) {
        i64::from(flag)
    } else {
        i64::try_from(value)?
    };
    // Each line of nested output repeats it.
    if count > 64 {
        return Err(failure(format!("indent is {count}; at most 64")));
    }
    Ok(" ".repeat(usize::try_from(count).unwrap_or(0)))
}

fn pair_of(value: &Value) -> Result<(String, String), Error> {
    let parts: Vec<Value> = value.try_iter()?.collect();
    match parts.as_slice() {
        [item, key] => item
            .as_str()
            .zip(key.as_str())
            .map(|(item, key)| (item.to_owned(), key.to_owned())),
        _ => None,
    }
    .ok_or_else(|| failure("separators must be two strings".to_owned()))
}

fn write(out: &mut String, value: &Value, layout: &Layout, depth: usize) -> Result<(), Error> {
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => number(out, value),
        ValueKind::String => string(out, value.as_str().unwrap_or_default(), layout.ascii),
        ValueKind::Seq => {
            let items: Vec<Value> = value.try_iter()?.collect();
            list(out, &items, layout, depth)?;
        }
        ValueKind::Map => map(out, value, layout, depth)?,
        other => {
            return Err(failure(format!(
                "an object of type {other} is not JSON serializable"
            )));
        }
    }
    Ok(())
}

fn number(out: &mut String, value: &Value) {
    if value.is_integer() {
        out.push_str(&value.to_string());
    } else if let Ok(float) = f64::try_from(value.clone()) {
        number::float(out, float, "Infinity", "NaN");
    }
}

fn list(out: &mut String, items: &[Value], layout: &Layout, depth: usize) -> Result<(), Error> {
    out.push('[');
    for (index, item) in items.iter().enumerate() {
        separate(out, layout, index, depth);
        write(out, item, layout, depth + 1)?;
    }
    close(out, layout, items.is_empty(), depth, ']');
    Ok(())
}

fn map(out: &mut String, value: &Value, layout: &Layout, depth: usize) -> Result<(), Error> {
    let mut keys: Vec<Value> = value.try_iter()?.collect();
    if layout.sort {
        keys.sort();
    }
    out.push('{');
    for (index, key) in keys.iter().enumerate() {
        separate(out, layout, index, depth);
        match key.kind() {
            ValueKind::String => string(out, key.as_str().unwrap_or_default(), layout.ascii),
            ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                out.push('"');
                write(out, key, layout, depth)?;
                out.push('"');
            }
            other => {
                return Err(failure(format!(
                    "keys must be str, int, float, bool or None, not {other}"
                )));
            }
        }
        out.push_str(&layout.key);
        write(out, &value.get_item(key)?, layout, depth + 1)?;
    }
    close(out, layout, keys.is_empty(), depth, '}');
    Ok(())
}

fn separate(out: &mut String, layout: &Layout, index: usize, depth: usize) {
    if index > 0 {
        out.push_str(&layout.item);
    }
    line(out, layout, depth + 1);
}

fn close(out: &mut String, layout: &Layout, empty: bool, depth: usize, bracket: char) {
    if !empty {
        line(out, layout, depth);
    }
    out.push(bracket);
}

fn line(out: &mut String, layout: &Layout, depth: usize) {
    if let Some(indent) = &layout.indent {
        out.push('\n');
        out.push_str(&indent.repeat(depth));
    }
}

/// Appends a string in quotes, escaped.
pub(crate) fn string(out: &mut String, text: &str, ascii: bool) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            control if control < ' ' => escape(out, control),
            wide if ascii && !wide.is_ascii() => escape(out, wide),
            // U+007F stays as it is, with ensure_ascii too.
            plain => out.push(plain),
        }
    }
    out.push('"');
}

fn escape(out: &mut String, letter: char) {
    for unit in letter.encode_utf16(&mut [0; 2]) {
        out.push_str(&format!("\\u{unit:04x}"));
    }
}

fn failure(message: String) -> Error {
    Error::new(ErrorKind::BadSerialization, message)
}
