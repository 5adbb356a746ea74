//! Literals of Python, whole, as JSON. No names, no operators.

use crate::coerce::quoted;

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
            if c == quote && !unescape.in_escape() {
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
    serde_json::from_str::<serde_json::Number>(&text)
        .ok()
        .map(|_| text)
}

/// The inside of a Python string, unescaped character by character. An escape that Python does not know stays.
#[derive(Debug, Clone, Default)]
pub(crate) struct PythonEscape {
    escape: String,
}

impl PythonEscape {
    pub(crate) fn in_escape(&self) -> bool {
        !self.escape.is_empty()
    }

    pub(crate) fn push(&mut self, c: char, out: &mut String) {
        if self.escape.is_empty() {
            if c == '\\' {
                self.escape.push(c)
            } else {
                out.push(c)
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
        let hex = want > 2;
        if hex && self.escape.len() > 2 && !c.is_ascii_hexdigit() {
            out.push_str(&std::mem::take(&mut self.escape));
            return;
        }
        if self.escape.len() < want {
            return;
        }
        let escape = std::mem::take(&mut self.escape);
        if hex {
            let code = u32::from_str_radix(&escape[2..], 16)
                .ok()
                .and_then(char::from_u32);
            out.push(code.unwrap_or(char::REPLACEMENT_CHARACTER));
            return;
        }
        match c {
            'n' => out.push('\n'),
            't' => out.push('\t'),
            'r' => out.push('\r'),
            '0' => out.push('\0'),
            '\n' => {}
            '\\' | '\'' | '"' => out.push(c),
            _ => out.push_str(&escape),
        }
    }
}
