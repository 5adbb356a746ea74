//! Filters and tests that differ from Jinja2's in minijinja.

use minijinja::value::{Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Value};

use crate::methods::is_space;
use crate::{json, repr};

/// Replaces them in an environment.
pub(crate) fn install(env: &mut Environment<'static>) {
    env.add_filter("tojson", json::tojson);
    env.add_filter("string", string);
    env.add_filter("trim", trim);
    env.add_filter("join", join);
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
fn join(value: &Value, separator: Option<&Value>, rest: Rest<Value>, kwargs: minijinja::value::Kwargs) -> Result<String, Error> {
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
    for (index, item) in value.try_iter()?.enumerate() {
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

fn attribute_of(item: Value, path: &str) -> Result<Value, Error> {
    path.split('.').try_fold(item, |value, name| value.get_attr(name))
}

/// Anything with a length and items: strings and mappings are sequences to Jinja2, and so is what is undefined.
fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Iterable | ValueKind::Undefined)
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
    Err(Error::new(ErrorKind::InvalidOperation, text.clone()).with_source(crate::error::Raised(text)))
}
