//! Methods of Python's strings and lists that minijinja-contrib does not know, or knows otherwise.

use minijinja::value::{ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

/// Called for every method that a value does not have itself.
pub(crate) fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let own = match value.kind() {
        ValueKind::String => string(value.as_str().unwrap_or_default(), method, args)?,
        ValueKind::Seq if method == "index" => Some(index_of(value, args)?),
        _ => None,
    };
    own.map_or_else(
        || pycompat::unknown_method_callback(state, value, method, args),
        Ok,
    )
}

/// What Python's `str.isspace` holds for: Rust's white space and the four information separators.
pub(crate) fn is_space(letter: char) -> bool {
    letter.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&letter)
}

fn string(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let found = match method {
        "strip" | "lstrip" | "rstrip" => strip(text, method, args)?,
        "split" if args.is_empty() => text
            .split(is_space)
            .filter(|word| !word.is_empty())
            .map(Value::from)
            .collect(),
        "rsplit" => rsplit(text, args)?,
        "splitlines" => splitlines(text, args)?,
        "partition" | "rpartition" => partition(text, method, args)?,
        "removeprefix" | "removesuffix" => affix(text, method, args)?,
        "index" | "rindex" => position(text, method, args)?,
        "zfill" => zfill(text, args)?,
        "center" | "ljust" | "rjust" => justify(text, method, args)?,
        "swapcase" => text.chars().map(swap).collect::<String>().into(),
        "casefold" => text.to_lowercase().into(),
        _ => return Ok(None),
    };
    Ok(Some(found))
}

fn strip(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (letters,): (Option<Value>,) = from_args(args)?;
    let letters = letters.filter(|value| !value.is_none());
    let set: Option<Vec<char>> = match &letters {
        None => None,
        Some(value) => Some(
            value
                .as_str()
                .ok_or_else(|| wrong("strip arg must be None or str"))?
                .chars()
                .collect(),
        ),
    };
    let hit = |letter: char| {
        set.as_ref()
            .map_or_else(|| is_space(letter), |set| set.contains(&letter))
    };
    let text = if method == "rstrip" {
        text
    } else {
        text.trim_start_matches(hit)
    };
    Ok(Value::from(if method == "lstrip" {
        text
    } else {
        text.trim_end_matches(hit)
    }))
}

fn rsplit(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator, limit): (Option<Value>, Option<i64>) = from_args(args)?;
    let limit = limit
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(usize::MAX - 1);
    let separator = separator.filter(|value| !value.is_none());
    let mut parts: Vec<&str> = match &separator {
        Some(value) => {
            let part = value
                .as_str()
                .filter(|part| !part.is_empty())
                .ok_or_else(|| wrong("empty separator"))?;
            text.rsplitn(limit + 1, part).collect()
        }
        None => {
            let mut parts = Vec::new();
            let mut rest = text.trim_end_matches(is_space);
            while !rest.is_empty() {
                match rest.rfind(is_space).filter(|_| parts.len() < limit) {
                    Some(at) => {
                        let word = rest[at..].trim_start_matches(is_space);
                        parts.push(word);
                        rest = rest[..at].trim_end_matches(is_space);
                    }
                    None => {
                        parts.push(rest);
                        rest = "";
                    }
                }
            }
            parts
        }
    };
    parts.reverse();
    Ok(parts.into_iter().map(Value::from).collect())
}

fn splitlines(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (keep,): (Option<bool>,) = from_args(args)?;
    let lines = lines(text).into_iter();
    Ok(match keep.unwrap_or(false) {
        true => lines
            .map(|(line, end)| Value::from(format!("{line}{end}")))
            .collect(),
        false => lines.map(|(line, _)| Value::from(line)).collect(),
    })
}

/// Lines with what ends them, as Python splits them: at more than newlines.
pub(crate) fn lines(text: &str) -> Vec<(&str, &str)> {
    let ends = |letter: char| {
        matches!(
            letter,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'
                ..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(ends) {
        let (line, tail) = rest.split_at(at);
        let width = if tail.starts_with("\r\n") {
            2
        } else {
            tail.chars().next().map_or(1, char::len_utf8)
        };
        lines.push((line, &tail[..width]));
        rest = &tail[width..];
    }
    if !rest.is_empty() {
        lines.push((rest, ""));
    }
    lines
}

fn partition(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator,): (&str,) = from_args(args)?;
    if separator.is_empty() {
        return Err(wrong("empty separator"));
    }
    let parts = match (
        method,
        text.split_once(separator),
        text.rsplit_once(separator),
    ) {
        ("partition", Some((head, tail)), _) | ("rpartition", _, Some((head, tail))) => {
            [head, separator, tail]
        }
        ("partition", ..) => [text, "", ""],
        _ => ["", "", text],
    };
    Ok(minijinja::value::Tuple::from(parts.map(Value::from)).into())
}

fn affix(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (part,): (&str,) = from_args(args)?;
    let cut = if method == "removeprefix" {
        text.strip_prefix(part)
    } else {
        text.strip_suffix(part)
    };
    Ok(Value::from(cut.unwrap_or(text)))
}

fn position(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (part,): (&str,) = from_args(args)?;
    let at = if method == "index" {
        text.find(part)
    } else {
        text.rfind(part)
    };
    let at = at.ok_or_else(|| wrong("substring not found"))?;
    Ok(Value::from(text[..at].chars().count()))
}

/// Most characters that padding makes: a template cannot ask for gigabytes.
const MAX_WIDTH: usize = 1 << 16;

fn width_of(width: i64) -> Result<usize, Error> {
    let width = usize::try_from(width).unwrap_or(0);
    if width > MAX_WIDTH {
        Err(wrong("the width is too large"))
    } else {
        Ok(width)
    }
}

fn zfill(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (width,): (i64,) = from_args(args)?;
    let zeros = "0".repeat(width_of(width)?.saturating_sub(text.chars().count()));
    let signed = text
        .strip_prefix(['+', '-'])
        .map(|digits| (&text[..1], digits));
    let (sign, digits) = signed.unwrap_or(("", text));
    Ok(Value::from(format!("{sign}{zeros}{digits}")))
}

fn justify(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, fill): (i64, Option<&str>) = from_args(args)?;
    let fill = fill.unwrap_or(" ");
    if fill.chars().count() != 1 {
        return Err(wrong(
            "the fill character must be exactly one character long",
        ));
    }
    let width = width_of(width)?;
    let room = width.saturating_sub(text.chars().count());
    // Where the room is odd, Python gives the left side the extra space if the width is odd as well.
    let left = match method {
        "ljust" => 0,
        "rjust" => room,
        _ => room / 2 + (room & width & 1),
    };
    Ok(Value::from(format!(
        "{}{text}{}",
        fill.repeat(left),
        fill.repeat(room - left)
    )))
}

fn swap(letter: char) -> String {
    if letter.is_uppercase() {
        letter.to_lowercase().collect()
    } else {
        letter.to_uppercase().collect()
    }
}

fn index_of(list: &Value, args: &[Value]) -> Result<Value, Error> {
    let (wanted,): (Value,) = from_args(args)?;
    let at = list.try_iter()?.position(|item| item == wanted);
    at.map(Value::from)
        .ok_or_else(|| wrong("the value is not in the list"))
}

fn wrong(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}
