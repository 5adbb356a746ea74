//! Operators that minijinja reads otherwise than Jinja2. They become calls of functions before the template is compiled.
//!
//! - `a % b` formats where `a` is a text; minijinja knows numbers only.
//! - `a + b` escapes the other side where one side is marked as HTML (`safe`, `escape`), as MarkupSafe does.

use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, Value};

use crate::printf;

/// The function that stands for `%`.
pub(crate) const PERCENT: &str = "octavo_percent";
/// The function that stands for `+`.
pub(crate) const PLUS: &str = "octavo_plus";

/// An operation to be replaced by a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    /// The first byte of the left side.
    pub(crate) start: usize,
    /// One past the last byte of the right side.
    pub(crate) end: usize,
    pub(crate) symbol: char,
    pub(crate) function: &'static str,
}

/// Puts calls in the place of operations: `a % b` becomes `octavo_percent((a ), ( b))`. Lines stay lines.
pub(crate) fn rewrite(source: &str, calls: &[Call]) -> String {
    // (where, bytes that go, what comes); of several that begin at one place the longest is the outermost.
    let mut calls: Vec<&Call> = calls.iter().collect();
    calls.sort_by_key(|call| (call.start, std::cmp::Reverse(call.end)));
    let mut edits: Vec<(usize, usize, String)> = Vec::new();
    for call in calls {
        let Some(at) = operator(&source[call.start..call.end], call.symbol) else {
            continue;
        };
        edits.push((call.start, 0, format!("{}((", call.function)));
        edits.push((call.start + at, call.symbol.len_utf8(), "), (".to_owned()));
        edits.push((call.end, 0, "))".to_owned()));
    }
    // An end comes before the operator that follows it without a space.
    edits.sort_by_key(|(at, width, _)| (*at, *width));
    let mut out = String::with_capacity(source.len() + 32 * edits.len());
    let mut done = 0;
    for (at, width, text) in edits {
        out.push_str(&source[done..at]);
        out.push_str(&text);
        done = at + width;
    }
    out.push_str(&source[done..]);
    out
}

/// The last such symbol outside strings and brackets: operators of one rank group to the left, so that it is the one
/// that was done last.
fn operator(text: &str, symbol: char) -> Option<usize> {
    let (mut quote, mut escaped, mut depth, mut found) = (None, false, 0_usize, None);
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), _) if open == letter => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(letter),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            (None, _) if letter == symbol && depth == 0 => found = Some(at),
            (None, _) => {}
        }
    }
    found
}

/// Defines the functions.
pub(crate) fn install(env: &mut Environment<'static>) {
    env.add_function(PERCENT, percent);
    env.add_function(PLUS, plus);
}

/// Python's `%`: formats a text, or the remainder that has the sign of the divisor.
fn percent(left: &Value, right: &Value) -> Result<Value, Error> {
    if let Some(text) = left.as_str() {
        if left.is_safe() {
            return Err(wrong(
                "formatting (%) of what is marked as HTML is not supported",
            ));
        }
        return printf::format(text, right).map(Value::from);
    }
    let whole = |value: &Value| match value.kind() {
        ValueKind::Bool => Some(i128::from(value.is_true())),
        ValueKind::Number if value.is_integer() => i128::try_from(value.clone()).ok(),
        _ => None,
    };
    let real = |value: &Value| match value.kind() {
        ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        _ => None,
    };
    if let (Some(left), Some(right)) = (whole(left), whole(right)) {
        let rest = left
            .checked_rem(right)
            .ok_or_else(|| wrong("integer modulo by zero"))?;
        let same_side = rest == 0 || (rest < 0) == (right < 0);
        return Ok(Value::from(if same_side { rest } else { rest + right }));
    }
    if let (Some(left), Some(right)) = (real(left), real(right)) {
        if right == 0.0 {
            return Err(wrong("float modulo"));
        }
        let rest = left % right;
        let same_side = rest == 0.0 || (rest < 0.0) == (right < 0.0);
        return Ok(Value::from(if same_side { rest } else { rest + right }));
    }
    Err(wrong(&format!(
        "unsupported operand types for %: {} and {}",
        left.kind(),
        right.kind()
    )))
}

/// `+` where a side is marked as HTML: the other side is escaped, and the whole is marked.
fn plus(left: &Value, right: &Value) -> Result<Value, Error> {
    let text = |value: &Value| {
        value
            .as_str()
            .map(|text| (text.to_owned(), value.is_safe()))
    };
    let (Some((left_text, left_safe)), Some((right_text, right_safe))) = (text(left), text(right))
    else {
        return Err(wrong(&format!(
            "unsupported operand types for +: {} and {}",
            left.kind(),
            right.kind()
        )));
    };
    if !left_safe && !right_safe {
        return Ok(Value::from(left_text + &right_text));
    }
    let escaped = |text: String, safe: bool| if safe { text } else { escape(&text) };
    Ok(Value::from_safe_string(
        escaped(left_text, left_safe) + &escaped(right_text, right_safe),
    ))
}

/// MarkupSafe's escapes.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            plain => out.push(plain),
        }
    }
    out
}

fn wrong(message: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(source: &str, part: &str, symbol: char) -> Call {
        let start = source.find(part).unwrap();
        Call {
            start,
            end: start + part.len(),
            symbol,
            function: if symbol == '%' { PERCENT } else { PLUS },
        }
    }

    #[test]
    fn operations_become_calls() {
        let source = "{{ '%s + %d' % (a, b % 2) ~ c }}";
        let calls = [
            call(source, "'%s + %d' % (a, b % 2)", '%'),
            call(source, "b % 2", '%'),
        ];
        assert_eq!(
            rewrite(source, &calls),
            "{{ octavo_percent(('%s + %d' ), ( (a, octavo_percent((b ), ( 2))))) ~ c }}"
        );
        let source = "{{ a|safe+b+c }}";
        let calls = [
            call(source, "a|safe+b", '+'),
            call(source, "a|safe+b+c", '+'),
        ];
        assert_eq!(
            rewrite(source, &calls),
            "{{ octavo_plus((octavo_plus((a|safe), (b))), (c)) }}"
        );
    }

    #[test]
    fn remainders_have_the_sign_of_the_divisor() {
        for (left, right, wanted) in [(7, 3, 1), (-7, 3, 2), (7, -3, -2), (-7, -3, -1)] {
            assert_eq!(
                percent(&left.into(), &right.into()).unwrap(),
                Value::from(wanted)
            );
        }
        assert_eq!(
            percent(&Value::from(-7.5), &2.into()).unwrap(),
            Value::from(0.5)
        );
        assert!(percent(&1.into(), &0.into()).is_err());
        assert!(percent(&Value::from(()), &1.into()).is_err());
    }
}
