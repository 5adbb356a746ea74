//! Where a JSON value ends, read character by character: strings, escapes and brackets, no more.

/// What one character did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scan {
    /// It belongs to the value.
    More,
    /// It is the value's last.
    Last,
    /// The value ended before it.
    Before,
}

/// A value in the making. Brackets are matched by kind; one that closes nothing ends the value before it.
#[derive(Debug, Clone, Default)]
pub(crate) struct JsonScan {
    stack: Vec<char>,
    string: bool,
    escaped: bool,
    scalar: bool,
    started: bool,
}

impl JsonScan {
    /// Whether the next character is inside of a string.
    pub(crate) fn in_string(&self) -> bool {
        self.string
    }

    pub(crate) fn push(&mut self, c: char) -> Scan {
        if self.string {
            return self.push_string(c);
        }
        if self.scalar && (c.is_whitespace() || matches!(c, ',' | '}' | ']' | '{' | '[' | '"')) {
            return Scan::Before;
        }
        self.started = true;
        match c {
            '"' => self.string = true,
            '{' => self.stack.push('}'),
            '[' => self.stack.push(']'),
            '}' | ']' => {
                if self.stack.last() != Some(&c) {
                    return if self.stack.is_empty() {
                        Scan::Before
                    } else {
                        Scan::More
                    };
                }
                self.stack.pop();
                if self.stack.is_empty() {
                    return Scan::Last;
                }
            }
            _ if self.stack.is_empty() => self.scalar = true,
            _ => {}
        }
        Scan::More
    }

    fn push_string(&mut self, c: char) -> Scan {
        if self.escaped {
            self.escaped = false;
        } else if c == '\\' {
            self.escaped = true;
        } else if c == '"' {
            self.string = false;
            if self.stack.is_empty() {
                return Scan::Last;
            }
        }
        Scan::More
    }
}

/// The text of a JSON string, unescaped character by character.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unescape {
    escape: String,
    high: Option<u32>,
}

impl Unescape {
    /// Whether the next character is part of an escape.
    pub(crate) fn in_escape(&self) -> bool {
        !self.escape.is_empty()
    }

    /// Take one character of the string's inside; `out` gets what it means.
    pub(crate) fn push(&mut self, c: char, out: &mut String) {
        if self.escape.is_empty() {
            if c == '\\' {
                self.escape.push(c);
            } else {
                self.lone(out);
                out.push(c);
            }
            return;
        }
        self.escape.push(c);
        if self.escape.starts_with("\\u") {
            if self.escape.len() >= 6 || (self.escape.len() > 2 && !c.is_ascii_hexdigit()) {
                self.unicode(out);
            }
            return;
        }
        self.escape.clear();
        self.lone(out);
        out.push(match c {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            other => other,
        });
    }

    fn lone(&mut self, out: &mut String) {
        if self.high.take().is_some() {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }

    fn unicode(&mut self, out: &mut String) {
        let text = std::mem::take(&mut self.escape);
        let Ok(code) = u32::from_str_radix(&text[2..], 16) else {
            self.lone(out);
            out.push_str(&text);
            return;
        };
        match (self.high.take(), code) {
            (None, 0xd800..=0xdbff) => self.high = Some(code),
            (Some(high), 0xdc00..=0xdfff) => {
                let joined = 0x10000 + ((high - 0xd800) << 10) + (code - 0xdc00);
                out.push(char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            (high, code) => {
                if high.is_some() {
                    out.push(char::REPLACEMENT_CHARACTER);
                }
                out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
    }
}
