//! `typed_kv`: `{key:value}` with a token in place of quotes, as Gemma writes it.

use crate::codec::Step;
use crate::coerce::{coerce, escape, quoted};
use crate::event::Finish;
use crate::sink::Sink;
use crate::tools::Parameters;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Start,
    Key,
    Value,
    Text,
    Bare,
    After,
}

/// The codec.
#[derive(Debug)]
pub(crate) struct TypedKv {
    quote: String,
    parameters: Option<Parameters>,
    at: At,
    /// Closing brackets of what is open.
    stack: Vec<char>,
    /// Key or bare value in the making.
    text: String,
    /// A quote token in the making.
    token: String,
    key: String,
    first: bool,
    quoted_key: bool,
}

impl TypedKv {
    pub(crate) fn new(quote: &str, parameters: Option<Parameters>) -> Self {
        Self {
            quote: quote.to_owned(),
            parameters,
            at: At::Start,
            stack: Vec::new(),
            text: String::new(),
            token: String::new(),
            key: String::new(),
            first: true,
            quoted_key: false,
        }
    }

    pub(crate) fn in_string(&self) -> bool {
        self.at == At::Text || !self.token.is_empty() || self.quoted_key
    }

    pub(crate) fn push(&mut self, c: char, sink: &mut Sink) -> Step {
        if self.token.is_empty() && !self.quote.starts_with(c) {
            return self.plain(c, sink);
        }
        self.token.push(c);
        if self.token == self.quote {
            self.token.clear();
            return self.quote_token(sink);
        }
        if self.quote.starts_with(&self.token) {
            return Step::More;
        }
        // Not the token: its characters are text, and the last may begin another.
        let token = std::mem::take(&mut self.token);
        let again = self.quote.starts_with(c);
        let cut = if again {
            token.len() - c.len_utf8()
        } else {
            token.len()
        };
        for each in token[..cut].chars() {
            if self.plain(each, sink) != Step::More {
                return Step::Fail;
            }
        }
        if again {
            self.token.push(c);
        }
        Step::More
    }

    fn quote_token(&mut self, sink: &mut Sink) -> Step {
        match self.at {
            At::Text => {
                sink.args("\"");
                self.at = At::After;
            }
            At::Value => {
                self.comma(sink);
                sink.args("\"");
                self.at = At::Text;
            }
            At::Key => self.quoted_key = !self.quoted_key,
            _ => return Step::Fail,
        }
        Step::More
    }

    fn plain(&mut self, c: char, sink: &mut Sink) -> Step {
        match self.at {
            At::Text => {
                let mut out = String::new();
                escape(c.encode_utf8(&mut [0; 4]), &mut out);
                sink.args(&out);
                Step::More
            }
            At::Start => match c {
                '{' => {
                    self.open('}', sink);
                    Step::More
                }
                _ if c.is_whitespace() => Step::More,
                _ => Step::Fail,
            },
            At::Key => self.push_key(c, sink),
            At::Value | At::Bare | At::After => self.push_value(c, sink),
        }
    }

    fn push_key(&mut self, c: char, sink: &mut Sink) -> Step {
        match c {
            _ if self.quoted_key => self.text.push(c),
            ':' => {
                self.key = self.text.trim().trim_matches(['"', '\'']).to_owned();
                self.text.clear();
                if !self.first {
                    sink.args(", ");
                }
                self.first = true;
                sink.args(&quoted(&self.key));
                sink.args(": ");
                self.at = At::Value;
            }
            ',' if self.text.trim().is_empty() => {}
            '}' => return self.close(sink),
            _ => self.text.push(c),
        }
        Step::More
    }

    /// A comma before an element of a list, but the first.
    fn comma(&mut self, sink: &mut Sink) {
        if !self.first && self.stack.last() == Some(&']') {
            sink.args(", ");
        }
        self.first = false;
    }

    fn open(&mut self, close: char, sink: &mut Sink) {
        if !self.stack.is_empty() {
            self.comma(sink);
        }
        self.stack.push(close);
        sink.args(if close == '}' { "{" } else { "[" });
        self.first = true;
        self.at = if close == '}' { At::Key } else { At::Value };
    }

    fn close(&mut self, sink: &mut Sink) -> Step {
        self.text.clear();
        let Some(close) = self.stack.pop() else {
            return Step::Before;
        };
        sink.args(close.encode_utf8(&mut [0; 4]));
        self.first = false;
        self.at = At::After;
        if self.stack.is_empty() {
            Step::Done
        } else {
            Step::More
        }
    }

    fn push_value(&mut self, c: char, sink: &mut Sink) -> Step {
        match c {
            '{' | '[' if self.at == At::Value && self.text.is_empty() => {
                self.open(if c == '{' { '}' } else { ']' }, sink);
            }
            ',' | '}' | ']' => {
                self.bare(sink);
                if c == ',' {
                    self.first = false;
                    self.at = if self.stack.last() == Some(&']') {
                        At::Value
                    } else {
                        At::Key
                    };
                } else if self.stack.last() == Some(&c) {
                    return self.close(sink);
                }
            }
            _ if self.at == At::After => {}
            _ if c.is_whitespace() && self.text.is_empty() => {}
            _ => {
                self.at = At::Bare;
                self.text.push(c);
            }
        }
        Step::More
    }

    /// Write the bare value that is complete, or `null` for a key without one.
    fn bare(&mut self, sink: &mut Sink) {
        let text = std::mem::take(&mut self.text);
        let text = text.trim();
        if self.at == At::After || (text.is_empty() && self.stack.last() == Some(&']')) {
            return;
        }
        self.comma(sink);
        let known = self.parameters.as_ref().filter(|_| self.stack.len() == 1);
        let types = known
            .and_then(|parameters| parameters.types(&self.key))
            .unwrap_or_default();
        let json = if text.is_empty() {
            "null".to_owned()
        } else {
            coerce(text, types, true)
        };
        sink.args(&json);
        self.at = At::After;
    }

    pub(crate) fn finish(&mut self, sink: &mut Sink, finish: Finish) {
        if finish != Finish::Stop || (self.stack.is_empty() && self.at != At::Start) {
            return;
        }
        match self.at {
            At::Text => sink.args("\""),
            At::Value | At::Bare if self.at == At::Bare || self.stack.last() == Some(&'}') => {
                self.bare(sink)
            }
            _ => {}
        }
        while let Some(close) = self.stack.pop() {
            sink.args(close.encode_utf8(&mut [0; 4]));
        }
    }
}
