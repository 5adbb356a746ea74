//! Literals of Python, whole, as JSON. No names, no operators.

use crate::coerce::{is_number, quoted};

/// How deep brackets may nest.
const MAX_DEPTH: usize = 64;

struct Reader<'a> {
    rest: &'a str,
    depth: usize,
}

/// Return JSON for a literal: numbers, strings, None, True, False (and their JSON names), lists, tuples, sets, dicts.
pub(crate) fn literal(text: &str) -> Option<String> {
    let mut reader = Reader {
        rest: text.trim(),
        depth: 0,
    };
    let json = reader.value()?;
    reader.rest.trim().is_empty().then_some(json)
}

impl Reader<'_> {
    fn value(&mut self) -> Option<String> {
        self.rest = self.rest.trim_start();
        let c = self.rest.chars().next()?;
        match c {
            '\'' | '"' => self.string(c).map(|text| quoted(&text)),
            '[' => self.items(']'),
            '(' => self.items(')'),
            '{' => self.braces(),
            _ => self.word(),
        }
    }

    fn word(&mut self) -> Option<String> {
        let end = self
            .rest
            .find(|c: char| matches!(c, ',' | ']' | ')' | '}' | ':') || c.is_whitespace());
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        match word {
            "None" | "null" => Some("null".to_owned()),
            "True" | "true" => Some("true".to_owned()),
            "False" | "false" => Some("false".to_owned()),
            _ => number(word),
        }
    }

    fn enter(&mut self) -> Option<()> {
        self.depth += 1;
        self.rest = self.rest.get(1..)?;
        (self.depth < MAX_DEPTH).then_some(())
    }

    /// Pass over a closing bracket, if it is next.
    fn closes(&mut self, close: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(close) {
            Some(rest) => {
                self.rest = rest;
                self.depth -= 1;
                true
            }
            None => false,
        }
    }

    fn comma(&mut self) -> Option<()> {
        self.rest = self.rest.trim_start().strip_prefix(',')?;
        Some(())
    }

    fn items(&mut self, close: char) -> Option<String> {
        self.enter()?;
        let mut items = Vec::new();
        while !self.closes(close) {
            if !items.is_empty() {
                self.comma()?;
                if self.closes(close) {
                    break;
                }
            }
            items.push(self.value()?);
        }
        Some(format!("[{}]", items.join(", ")))
    }

    fn braces(&mut self) -> Option<String> {
        self.enter()?;
        let mut items: Vec<String> = Vec::new();
        let mut set = None;
        while !self.closes('}') {
            if !items.is_empty() {
                self.comma()?;
                if self.closes('}') {
                    break;
                }
            }
            let key = self.value()?;
            self.rest = self.rest.trim_start();
            let pair = self.rest.strip_prefix(':');
            if *set.get_or_insert(pair.is_none()) != pair.is_none() {
                return None;
            }
            match pair {
                Some(rest) => {
                    self.rest = rest;
                    let key = if key.starts_with('"') {
                        key
                    } else {
                        quoted(&key)
                    };
                    items.push(format!("{key}: {}", self.value()?));
                }
                None => items.push(key),
            }
        }
        let joined = items.join(", ");
        Some(if set == Some(true) {
            format!("[{joined}]")
        } else {
            format!("{{{joined}}}")
        })
    }

    fn string(&mut self, quote: char) -> Option<String> {
        let mut unescape = PythonEscape::default();
        let mut out = String::new();
        for (at, c) in self.rest.char_indices().skip(1) {
            if c == quote && !unescape.takes(c) {
                unescape.flush(&mut out);
                self.rest = &self.rest[at + 1..];
                return Some(out);
            }
            unescape.push(c, &mut out);
        }
        None
    }
}

/// A number as JSON writes it: no leading zeros, no underscores.
fn number(word: &str) -> Option<String> {
    let digits = word.replace('_', "");
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", digits.strip_prefix('+').unwrap_or(&digits)),
    };
    let mut digits = digits.trim_start_matches('0').to_owned();
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        if !word.contains('0') && !digits.starts_with('.') {
            return None;
        }
        digits.insert(0, '0');
    }
    if digits.ends_with('.') {
        digits.push('0');
    }
    let text = format!("{sign}{digits}");
    is_number(&text).then_some(text)
}

/// The inside of a Python string, unescaped character by character. An escape that Python does not know stays.
#[derive(Debug, Clone, Default)]
pub(crate) struct PythonEscape {
    escape: String,
    /// The first half of a pair that JSON writes for one character.
    high: Option<u32>,
}

impl PythonEscape {
    /// Whether the next character belongs to an escape that has begun.
    pub(crate) fn takes(&self, c: char) -> bool {
        match self.escape.len() {
            0 => false,
            1 => true,
            _ => c.is_ascii_hexdigit(),
        }
    }

    /// Say what an escape that goes no further leaves.
    pub(crate) fn flush(&mut self, out: &mut String) {
        if self.high.take().is_some() {
            out.push(char::REPLACEMENT_CHARACTER);
        }
        out.push_str(&std::mem::take(&mut self.escape));
    }

    /// Take one character of the string's inside; `out` gets what it means.
    pub(crate) fn push(&mut self, c: char, out: &mut String) {
        if !self.takes(c) {
            if c == '\\' {
                // The second half of a pair may follow the first.
                out.push_str(&std::mem::take(&mut self.escape));
                self.escape.push(c);
            } else {
                self.flush(out);
                out.push(c);
            }
            return;
        }
        self.escape.push(c);
        let want = match self.escape.as_bytes().get(1) {
            Some(b'x') => 4,
            Some(b'u') => 6,
            Some(b'U') => 10,
            _ => 2,
        };
        if self.escape.len() < want {
            return;
        }
        let escape = std::mem::take(&mut self.escape);
        if want > 2 {
            self.code(
                u32::from_str_radix(&escape[2..], 16).unwrap_or(u32::MAX),
                out,
            );
            return;
        }
        self.flush(out);
        match c {
            'n' => out.push('\n'),
            't' => out.push('\t'),
            'r' => out.push('\r'),
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            'a' => out.push('\u{7}'),
            'v' => out.push('\u{b}'),
            '0' => out.push('\0'),
            '\n' => {}
            '\\' | '\'' | '"' => out.push(c),
            _ => out.push_str(&escape),
        }
    }

    /// A character by its number, or half of one as JSON writes it.
    fn code(&mut self, code: u32, out: &mut String) {
        match (self.high.take(), code) {
            (None, 0xd800..=0xdbff) => self.high = Some(code),
            (Some(high), 0xdc00..=0xdfff) => {
                let joined = 0x10000 + ((high - 0xd800) << 10) + (code - 0xdc00);
                out.push(char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            (high, _) => {
                if high.is_some() {
                    out.push(char::REPLACEMENT_CHARACTER);
                }
                out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
    }
}
