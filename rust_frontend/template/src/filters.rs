//! Filters and tests that differ from Jinja2's in minijinja.

use minijinja::value::{Kwargs, Rest, Tuple, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Value};

use crate::methods::{is_space, lines};
use crate::{json, repr};

/// Replaces them in an environment.
pub(crate) fn install(env: &mut Environment<'static>) {
    env.add_filter("tojson", json::tojson);
    env.add_filter("string", string);
    env.add_filter("trim", trim);
    env.add_filter("join", join);
    env.add_filter("list", list);
    env.add_filter("indent", indent);
    env.add_filter(crate::tags::ITERABLE, iterable);
    env.add_filter(crate::spans::FILTER, crate::spans::generation);
    env.add_filter("format", format);
    env.add_test("sequence", is_sequence);
    env.add_test("iterable", is_sequence);
    env.add_test("number", is_number);
    env.add_test("callable", is_callable);
}

/// Text as Python's `str` gives it.
fn string(value: &Value) -> Value {
    if value.kind() == ValueKind::String {
        return value.clone();
    }
    let mut out = String::new();
    repr::str(&mut out, value);
    Value::from(out)
}

/// Python's `str.strip` on the text of any value.
fn trim(value: &Value, letters: Option<&str>) -> Value {
    let mut text = String::new();
    repr::str(&mut text, value);
    Value::from(match letters {
        Some(set) => text.trim_matches(|letter| set.contains(letter)),
        None => text.trim_matches(is_space),
    })
}

/// Joins the text of items; `attribute` picks from each.
fn join(
    value: &Value,
    separator: Option<&Value>,
    rest: Rest<Value>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let attribute: Option<&str> = match rest.first() {
        Some(value) => value.as_str(),
        None => kwargs.get("attribute")?,
    };
    let named: Option<&Value> = kwargs.get("d")?;
    kwargs.assert_all_used()?;
    let mut glue = String::new();
    if let Some(separator) = separator.or(named) {
        repr::str(&mut glue, separator);
    }
    let mut out = String::new();
    for (index, item) in iterable(value)?.try_iter()?.enumerate() {
        if index > 0 {
            out.push_str(&glue);
        }
        match attribute {
            Some(path) => repr::str(&mut out, &attribute_of(item, path)?),
            None => repr::str(&mut out, &item),
        }
    }
    Ok(out)
}

/// A list of the items.
fn list(value: &Value) -> Result<Value, Error> {
    let items: Vec<Value> = iterable(value)?.try_iter()?.collect();
    Ok(Value::from(items))
}

/// Indents all lines but the first, and not empty ones, unless `first` and `blank` say so. `width` is a number or a text.
fn indent(
    text: &str,
    width: Option<Value>,
    first: Option<bool>,
    blank: Option<bool>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let width: Option<Value> =
        width.map_or_else(|| kwargs.get("width"), |width| Ok(Some(width)))?;
    let first: Option<bool> = first.map_or_else(|| kwargs.get("first"), |first| Ok(Some(first)))?;
    let blank: Option<bool> = blank.map_or_else(|| kwargs.get("blank"), |blank| Ok(Some(blank)))?;
    kwargs.assert_all_used()?;
    let margin = width.map_or_else(|| Ok(" ".repeat(4)), json::indentation)?;
    // Jinja2 appends a newline before it splits, so that a last empty line is not lost.
    let whole = format!("{text}\n");
    let mut out = String::with_capacity(text.len() + margin.len());
    for (index, (line, _)) in lines(&whole).into_iter().enumerate() {
        out.push_str(if index > 0 { "\n" } else { "" });
        let wanted = if index == 0 {
            first.unwrap_or(false)
        } else {
            blank.unwrap_or(false) || !line.is_empty()
        };
        out.push_str(if wanted { &margin } else { "" });
        out.push_str(line);
    }
    Ok(out)
}

/// `text|format(...)`: `text % ...`, with values by position or by name.
fn format(text: &str, values: Rest<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let named: Vec<(&str, Value)> = kwargs
        .args()
        .map(|name| Ok((name, kwargs.get(name)?)))
        .collect::<Result<_, Error>>()?;
    let right = match (named.is_empty(), values.is_empty()) {
        (true, _) => Tuple::from(values.to_vec()).into(),
        (false, true) => Value::from_pairs(named),
        (false, false) => {
            let message = "format takes values by position or by name, not both";
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
    };
    crate::printf::format(text, &right)
}

/// What a loop runs over: minijinja runs over None as if it were empty, and cannot tell the last character of a text.
fn iterable(value: &Value) -> Result<Value, Error> {
    let name = match value.kind() {
        ValueKind::String => {
            let letters = value
                .as_str()
                .unwrap_or_default()
                .chars()
                .map(|letter| Value::from(letter.to_string()));
            return Ok(Value::from(letters.collect::<Vec<_>>()));
        }
        ValueKind::None => "NoneType",
        ValueKind::Bool => "bool",
        ValueKind::Number if value.is_integer() => "int",
        ValueKind::Number => "float",
        _ => return Ok(value.clone()),
    };
    Err(Error::new(
        ErrorKind::InvalidOperation,
        format!("'{name}' object is not iterable"),
    ))
}

fn attribute_of(item: Value, path: &str) -> Result<Value, Error> {
    path.split('.')
        .try_fold(item, |value, name| value.get_attr(name))
}

/// Anything with a length and items: strings and mappings are sequences to Jinja2, and so is what is undefined.
fn is_sequence(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::String
            | ValueKind::Seq
            | ValueKind::Map
            | ValueKind::Iterable
            | ValueKind::Undefined
    )
}

/// Booleans are numbers in Python.
fn is_number(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Number | ValueKind::Bool)
}

fn is_callable(value: &Value) -> bool {
    value.kind() == ValueKind::Plain
}

/// What `raise_exception` gives.
pub(crate) fn raise_exception(message: &Value) -> Result<Value, Error> {
    let mut text = String::new();
    repr::str(&mut text, message);
    Err(Error::new(ErrorKind::InvalidOperation, text.clone())
        .with_source(crate::error::Raised(text)))
}
