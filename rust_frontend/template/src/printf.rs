//! Python's `text % values`, of which `printf` is the model.

use minijinja::value::{Tuple, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use crate::repr;

/// Most characters that a width or a precision asks for.
const MAX_WIDTH: usize = 1 << 16;

/// One `%…` of a text.
#[derive(Debug, Default)]
struct Spec<'a> {
    /// `%(name)…`: a key of the mapping on the right.
    name: Option<&'a str>,
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
    kind: char,
}

/// The values on the right, as they are used up.
struct Values {
    items: Vec<Value>,
    next: usize,
    /// Present where the right side may be read by name.
    mapping: Option<Value>,
}

impl Values {
    fn new(right: &Value) -> Self {
        let tuple = right.downcast_object_ref::<Tuple>().is_some();
        Self {
            items: match tuple {
                true => right.try_iter().map(Iterator::collect).unwrap_or_default(),
                false => vec![right.clone()],
            },
            next: 0,
            mapping: (matches!(right.kind(), ValueKind::Map | ValueKind::Seq) && !tuple)
                .then(|| right.clone()),
        }
    }

    fn take(&mut self) -> Result<Value, Error> {
        let value = self.items.get(self.next).cloned();
        self.next += 1;
        value.ok_or_else(|| wrong("not enough arguments for format string"))
    }

    fn named(&self, name: &str) -> Result<Value, Error> {
        let mapping = self
            .mapping
            .as_ref()
            .filter(|value| value.kind() == ValueKind::Map);
        let mapping = mapping.ok_or_else(|| wrong("format requires a mapping"))?;
        let value = mapping.get_item(&Value::from(name))?;
        if value.is_undefined() {
            return Err(wrong(&format!("the mapping has no key '{name}'")));
        }
        Ok(value)
    }
}

/// Formats `text % right`.
///
/// # Errors
/// A conversion that Python does not have, a value of another type, too few or too many values, a width beyond reason.
pub(crate) fn format(text: &str, right: &Value) -> Result<String, Error> {
    let mut values = Values::new(right);
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let (spec, tail) = parse(&rest[at + 1..], &mut values)?;
        rest = tail;
        if spec.kind == '%' {
            out.push('%');
            continue;
        }
        let value = match spec.name {
            Some(name) => values.named(name)?,
            None => values.take()?,
        };
        one(&mut out, &spec, &value)?;
    }
    out.push_str(rest);
    if values.next < values.items.len() && values.mapping.is_none() {
        return Err(wrong(
            "not all arguments converted during string formatting",
        ));
    }
    Ok(out)
}

/// Reads what follows a `%`. Returns it and the rest of the text.
fn parse<'a>(text: &'a str, values: &mut Values) -> Result<(Spec<'a>, &'a str), Error> {
    let mut spec = Spec::default();
    let mut rest = text;
    if let Some(inner) = rest.strip_prefix('(') {
        let end = inner
            .find(')')
            .ok_or_else(|| wrong("incomplete format key"))?;
        spec.name = Some(&inner[..end]);
        rest = &inner[end + 1..];
    }
    while let Some(flag) = rest
        .chars()
        .next()
        .filter(|letter| "-+ #0".contains(*letter))
    {
        match flag {
            '-' => spec.left = true,
            '+' => spec.plus = true,
            ' ' => spec.space = true,
            '#' => spec.alternate = true,
            _ => spec.zero = true,
        }
        rest = &rest[1..];
    }
    let (width, tail) = number(rest, values)?;
    rest = tail;
    if let Some(width) = width {
        spec.left |= width < 0;
        spec.width = bounded(width.unsigned_abs())?;
    }
    if let Some(tail) = rest.strip_prefix('.') {
        let (precision, tail) = number(tail, values)?;
        spec.precision = Some(bounded(precision.unwrap_or(0).max(0).unsigned_abs())?);
        rest = tail;
    }
    rest = rest.trim_start_matches(['h', 'l', 'L']);
    let mut letters = rest.chars();
    spec.kind = letters.next().ok_or_else(|| wrong("incomplete format"))?;
    Ok((spec, letters.as_str()))
}

/// Reads digits, or the value that a `*` stands for.
fn number<'a>(text: &'a str, values: &mut Values) -> Result<(Option<i64>, &'a str), Error> {
    if let Some(rest) = text.strip_prefix('*') {
        return Ok((Some(i64::try_from(values.take()?)?), rest));
    }
    let end = text
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if digits.is_empty() {
        return Ok((None, rest));
    }
    let number = digits
        .parse()
        .map_err(|_| wrong("a width or precision is too large"))?;
    Ok((Some(number), rest))
}

fn bounded(width: u64) -> Result<usize, Error> {
    let width = usize::try_from(width).unwrap_or(usize::MAX);
    if width > MAX_WIDTH {
        return Err(wrong("a width or precision is too large"));
    }
    Ok(width)
}

fn one(out: &mut String, spec: &Spec<'_>, value: &Value) -> Result<(), Error> {
    match spec.kind {
        's' | 'r' => {
            let mut text = String::new();
            match spec.kind {
                's' => repr::str(&mut text, value),
                _ => repr::repr(&mut text, value),
            }
            let text: String = text
                .chars()
                .take(spec.precision.unwrap_or(usize::MAX))
                .collect();
            pad(out, spec, "", &text, false);
        }
        'c' => pad(out, spec, "", &letter(value)?, false),
        'd' | 'i' | 'u' => {
            let number = integer(value, true)?;
            digits(out, spec, number, &number.unsigned_abs().to_string(), "");
        }
        'x' | 'X' | 'o' => {
            let number = integer(value, false)?;
            let size = number.unsigned_abs();
            let (text, prefix) = match spec.kind {
                'x' => (format!("{size:x}"), "0x"),
                'X' => (format!("{size:X}"), "0X"),
                _ => (format!("{size:o}"), "0o"),
            };
            digits(
                out,
                spec,
                number,
                &text,
                if spec.alternate { prefix } else { "" },
            );
        }
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
            let number = float(value)?;
            let text = real(spec, number.abs());
            let upper = spec.kind.is_ascii_uppercase();
            let text = if upper { text.to_uppercase() } else { text };
            pad(
                out,
                spec,
                sign(spec, number.is_sign_negative()),
                &text,
                number.is_finite(),
            );
        }
        other => return Err(wrong(&format!("unsupported format character '{other}'"))),
    }
    Ok(())
}

fn digits(out: &mut String, spec: &Spec<'_>, number: i128, text: &str, prefix: &str) {
    let zeros = "0".repeat(spec.precision.unwrap_or(0).saturating_sub(text.len()));
    let head = format!("{}{prefix}", sign(spec, number < 0));
    pad(out, spec, &head, &format!("{zeros}{text}"), true);
}

fn sign(spec: &Spec<'_>, negative: bool) -> &'static str {
    match (negative, spec.plus, spec.space) {
        (true, ..) => "-",
        (false, true, _) => "+",
        (false, false, true) => " ",
        _ => "",
    }
}

/// Fills up to the width: zeros go between the head (sign, prefix) and the digits.
fn pad(out: &mut String, spec: &Spec<'_>, head: &str, text: &str, numeric: bool) {
    let room = spec
        .width
        .saturating_sub(head.chars().count() + text.chars().count());
    let zeros = spec.zero && numeric && !spec.left;
    if !spec.left && !zeros {
        out.push_str(&" ".repeat(room));
    }
    out.push_str(head);
    if zeros {
        out.push_str(&"0".repeat(room));
    }
    out.push_str(text);
    if spec.left {
        out.push_str(&" ".repeat(room));
    }
}

fn real(spec: &Spec<'_>, number: f64) -> String {
    if !number.is_finite() {
        return if number.is_nan() { "nan" } else { "inf" }.to_owned();
    }
    let precision = spec.precision.unwrap_or(6);
    let point = |text: String| match spec.alternate && precision == 0 {
        true => format!("{text}."),
        false => text,
    };
    match spec.kind.to_ascii_lowercase() {
        'e' => scientific(number, precision),
        'f' => point(format!("{number:.precision$}")),
        _ => {
            let significant = precision.max(1);
            let exponent = format!("{number:.*e}", significant - 1);
            let exponent: i64 = exponent
                .rsplit('e')
                .next()
                .and_then(|text| text.parse().ok())
                .unwrap_or(0);
            let most = i64::try_from(significant).unwrap_or(i64::MAX);
            if (-4..most).contains(&exponent) {
                let places = usize::try_from(most - 1 - exponent).unwrap_or(0);
                shorten(format!("{number:.places$}"), spec.alternate)
            } else {
                let text = scientific(number, significant - 1);
                let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "+00"));
                format!(
                    "{}e{exponent}",
                    shorten(mantissa.to_owned(), spec.alternate)
                )
            }
        }
    }
}

/// Drops zeros after the point that `g` does not write.
fn shorten(text: String, keep: bool) -> String {
    if keep || !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Digits with an exponent of at least two digits and its sign.
fn scientific(number: f64, precision: usize) -> String {
    let text = format!("{number:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i64 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

/// A whole number. With `cut` a float loses its fraction, as `%d` has it.
fn integer(value: &Value, cut: bool) -> Result<i128, Error> {
    if value.kind() == ValueKind::Bool {
        return Ok(i128::from(value.is_true()));
    }
    if value.is_integer() {
        return i128::try_from(value.clone());
    }
    let number = (cut && value.kind() == ValueKind::Number).then(|| f64::try_from(value.clone()));
    match number {
        Some(Ok(number)) if number.abs() < 1e38 => {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "within the range of i128, and cutting is meant"
            )]
            let whole = number as i128;
            Ok(whole)
        }
        _ => Err(wrong(&format!(
            "an integer is required, not {}",
            value.kind()
        ))),
    }
}

fn float(value: &Value) -> Result<f64, Error> {
    match value.kind() {
        ValueKind::Bool => Ok(f64::from(u8::from(value.is_true()))),
        ValueKind::Number => f64::try_from(value.clone()),
        other => Err(wrong(&format!("must be real number, not {other}"))),
    }
}

fn letter(value: &Value) -> Result<String, Error> {
    if let Some(text) = value.as_str().filter(|text| text.chars().count() == 1) {
        return Ok(text.to_owned());
    }
    let code = value.is_integer().then(|| u32::try_from(value.clone()));
    match code {
        Some(Ok(code)) => char::from_u32(code).map(String::from),
        _ => None,
    }
    .ok_or_else(|| wrong("%c requires an integer of a character, or one character"))
}

fn wrong(message: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, right: impl Into<Value>) -> String {
        format(text, &right.into()).unwrap()
    }

    fn tuple(items: Vec<Value>) -> Value {
        Tuple::from(items).into()
    }

    /// Expected texts are CPython's.
    #[test]
    fn formats_as_python_does() {
        for (text, value, wanted) in [
            ("%s", Value::from(1.0), "1.0"),
            ("%5s|", Value::from("ab"), "   ab|"),
            ("%-5s|", Value::from("ab"), "ab   |"),
            ("%.1s", Value::from("éa"), "é"),
            ("%r", Value::from("it's"), "\"it's\""),
            ("%05d", Value::from(-42), "-0042"),
            ("%+d% d", tuple(vec![1.into(), 2.into()]), "+1 2"),
            ("%d", Value::from(2.9), "2"),
            (
                "%x %#X %#o",
                tuple(vec![255.into(), 255.into(), 8.into()]),
                "ff 0XFF 0o10",
            ),
            ("%.3d", Value::from(7), "007"),
            ("%f", Value::from(0.5), "0.500000"),
            ("%.2f", Value::from(2), "2.00"),
            ("%e", Value::from(12345.678), "1.234568e+04"),
            (
                "%g %g %g",
                tuple(vec![0.0001.into(), 1e-5.into(), 1_234_567.0.into()]),
                "0.0001 1e-05 1.23457e+06",
            ),
            ("%G", Value::from(1e100), "1E+100"),
            ("%8.3f|", Value::from(-2.7499), "  -2.750|"),
            ("%08.2f", Value::from(-1.5), "-0001.50"),
            ("%c%c", tuple(vec!["x".into(), 65.into()]), "xA"),
            ("100%%", tuple(vec![]), "100%"),
            ("%*d", tuple(vec![4.into(), 7.into()]), "   7"),
            ("%s", Value::from(vec![1, 2]), "[1, 2]"),
            ("%s", Value::from(()), "None"),
            ("%d", Value::from(true), "1"),
        ] {
            assert_eq!(shown(text, value), wanted, "{text}");
        }
        let named = Value::from_pairs([("a", Value::from(1)), ("b", Value::from("x"))]);
        assert_eq!(shown("%(b)s%(a)03d", named.clone()), "x001");
        assert_eq!(shown("none", named), "none");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (text, value) in [
            ("%s %s", Value::from("one")),
            ("none", Value::from("one")),
            ("%d", Value::from("text")),
            ("%x", Value::from(1.5)),
            ("%(a)s", Value::from("text")),
            ("%y", Value::from(1)),
            ("%", Value::from(1)),
            ("%999999999d", Value::from(1)),
            ("%99999999999999999999d", Value::from(1)),
        ] {
            assert!(format(text, &value).is_err(), "{text}");
        }
    }
}
