//! `pythonic`: call expressions with literal arguments, `[f(a=1, b='x'), g()]`.

use octavo_grammar::State;

use crate::codec::Step;
use crate::coerce::{escape, quoted};
use crate::event::Finish;
use crate::python_literal::PythonEscape;
pub(crate) use crate::python_literal::literal;
use crate::sink::{Sink, Verdict};

/// The longest name.
const MAX_NAME: usize = 256;
/// How far is looked behind a quote to see whether it ends its string.
const MAX_LOOK: usize = 96;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Before the first call.
    Start,
    /// Inside a call's name.
    Name,
    /// Before an argument.
    Argument,
    /// Inside an argument's name.
    Key,
    /// Before a value.
    Value,
    /// Inside a string that goes out at once.
    Text,
    /// Behind a quote that may end the string.
    Look,
    /// Inside another value, which is held until it is complete.
    Held,
    /// After a value.
    After,
    /// Between calls.
    Between,
}

/// The codec.
#[derive(Debug)]
pub(crate) struct Python {
    brackets: bool,
    list: bool,
    at: At,
    name: String,
    key: String,
    count: usize,
    opened: bool,
    committed: bool,
    quote: char,
    unescape: PythonEscape,
    held: String,
    depth: usize,
    string: Option<char>,
    escaped: bool,
}

impl Python {
    pub(crate) fn new(state: &State) -> Self {
        Self {
            brackets: state.brackets,
            list: false,
            at: At::Start,
            name: String::new(),
            key: String::new(),
            count: 0,
            opened: false,
            committed: false,
            quote: '"',
            unescape: PythonEscape::default(),
            held: String::new(),
            depth: 0,
            string: None,
            escaped: false,
        }
    }

    pub(crate) fn in_string(&self) -> bool {
        self.at == At::Text || self.string.is_some()
    }

    pub(crate) fn committed(&self) -> bool {
        self.committed
    }

    pub(crate) fn push(&mut self, c: char, sink: &mut Sink) -> Step {
        match self.at {
            At::Text => self.push_text(c, sink),
            At::Look => self.look(c, sink),
            At::Held => self.push_held(c, sink),
            At::Name | At::Key => self.push_name(c),
            _ if c.is_whitespace() => Step::More,
            At::Start | At::Between => self.outside(c),
            At::Argument if c == ')' => self.end(sink),
            At::Argument if is_start(c) => {
                self.key.clear();
                self.key.push(c);
                self.at = At::Key;
                Step::More
            }
            At::Argument if c == ',' && self.count > 0 => Step::More,
            At::Value => self.value(c, sink),
            At::After => match c {
                ',' => {
                    self.at = At::Argument;
                    Step::More
                }
                ')' => self.end(sink),
                _ => Step::Fail,
            },
            At::Argument => Step::Fail,
        }
    }

    fn outside(&mut self, c: char) -> Step {
        match c {
            '[' if self.brackets && self.at == At::Start && !self.list => self.list = true,
            ']' if self.list => return Step::Done,
            ',' | ';' if self.at == At::Between => {}
            _ if is_start(c) && (self.list || !self.brackets) => {
                self.name.clear();
                self.name.push(c);
                self.at = At::Name;
            }
            _ if self.at == At::Between && !self.list => return Step::Before,
            _ => return Step::Fail,
        }
        Step::More
    }

    fn push_name(&mut self, c: char) -> Step {
        let name = if self.at == At::Name {
            &mut self.name
        } else {
            &mut self.key
        };
        let spaced = name.ends_with(' ');
        if (c.is_alphanumeric() || matches!(c, '_' | '.' | '-')) && !spaced && name.len() < MAX_NAME
        {
            name.push(c);
            return Step::More;
        }
        if c == ' ' {
            if !spaced {
                name.push(c);
            }
            return Step::More;
        }
        let done = name.trim_end().len();
        name.truncate(done);
        match (self.at, c) {
            (At::Name, '(') => {
                self.count = 0;
                self.opened = false;
                self.at = At::Argument;
            }
            (At::Key, '=') => self.at = At::Value,
            _ => return Step::Fail,
        }
        Step::More
    }

    /// The first character of a value.
    fn value(&mut self, c: char, sink: &mut Sink) -> Step {
        if !(is_start(c)
            || c.is_ascii_digit()
            || matches!(c, '\'' | '"' | '[' | '{' | '(' | '-' | '+' | '.'))
        {
            return Step::Fail;
        }
        if !self.opened && !self.open(sink) {
            return Step::Fail;
        }
        sink.args(if self.count == 0 { "{" } else { ", " });
        self.count += 1;
        sink.args(&quoted(&self.key));
        sink.args(": ");
        if matches!(c, '\'' | '"') {
            self.quote = c;
            self.unescape = PythonEscape::default();
            self.at = At::Text;
            sink.args("\"");
            return Step::More;
        }
        self.held.clear();
        self.depth = 0;
        self.at = At::Held;
        self.push_held(c, sink)
    }

    fn open(&mut self, sink: &mut Sink) -> bool {
        if sink.open(&self.name, None) == Verdict::Text {
            return false;
        }
        self.opened = true;
        self.committed = true;
        true
    }

    fn push_text(&mut self, c: char, sink: &mut Sink) -> Step {
        let mut text = String::new();
        let ends = c == self.quote && !self.unescape.takes(c);
        if ends {
            self.unescape.flush(&mut text);
            self.held.clear();
            self.at = At::Look;
        } else {
            self.unescape.push(c, &mut text);
        }
        let mut out = String::new();
        escape(&text, &mut out);
        sink.args(&out);
        Step::More
    }

    /// A quote ends its string only when the call goes on behind it; models forget to escape quotes.
    fn look(&mut self, c: char, sink: &mut Sink) -> Step {
        self.held.push(c);
        match ends(&self.held) {
            None if self.held.len() < MAX_LOOK => Step::More,
            Some(false) => {
                let held = std::mem::take(&mut self.held);
                let quote = self.quote;
                let mut out = String::new();
                escape(quote.encode_utf8(&mut [0; 4]), &mut out);
                sink.args(&out);
                self.at = At::Text;
                self.again(&held, sink)
            }
            _ => self.close_text(sink),
        }
    }

    fn close_text(&mut self, sink: &mut Sink) -> Step {
        let held = std::mem::take(&mut self.held);
        sink.args("\"");
        self.at = At::After;
        self.again(&held, sink)
    }

    fn again(&mut self, held: &str, sink: &mut Sink) -> Step {
        let mut step = Step::More;
        for each in held.chars() {
            step = self.push(each, sink);
            if step != Step::More {
                break;
            }
        }
        step
    }

    fn push_held(&mut self, c: char, sink: &mut Sink) -> Step {
        if let Some(quote) = self.string {
            if self.escaped {
                self.escaped = false;
            } else if c == '\\' {
                self.escaped = true;
            } else if c == quote {
                self.string = None;
            }
            self.held.push(c);
            return Step::More;
        }
        match c {
            '\'' | '"' => self.string = Some(c),
            '[' | '{' | '(' => self.depth += 1,
            ',' | ')' if self.depth == 0 => {
                self.write_held(sink);
                self.at = At::After;
                return self.push(c, sink);
            }
            ']' | '}' | ')' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.held.push(c);
        Step::More
    }

    fn write_held(&mut self, sink: &mut Sink) {
        let held = std::mem::take(&mut self.held);
        let json = literal(&held).unwrap_or_else(|| quoted(held.trim()));
        sink.args(&json);
    }

    fn end(&mut self, sink: &mut Sink) -> Step {
        if !self.opened && !self.open(sink) {
            return Step::Fail;
        }
        sink.args(if self.count == 0 { "{}" } else { "}" });
        sink.close();
        self.opened = false;
        self.at = At::Between;
        Step::More
    }

    pub(crate) fn finish(&mut self, sink: &mut Sink, finish: Finish) {
        let whole = finish == Finish::Stop;
        if self.at == At::Look && whole {
            self.close_text(sink);
        }
        if !self.opened {
            return;
        }
        if whole {
            match self.at {
                At::Text => {
                    let mut text = String::new();
                    self.unescape.flush(&mut text);
                    let mut out = String::new();
                    escape(&text, &mut out);
                    sink.args(&out);
                    sink.args("\"");
                }
                At::Held => self.write_held(sink),
                _ => {}
            }
            sink.args(if self.count == 0 { "{}" } else { "}" });
        }
        sink.close_cut(whole);
        self.opened = false;
    }
}

fn is_start(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

/// Whether what follows a quote shows that it ends its string; none while it may be either.
fn ends(after: &str) -> Option<bool> {
    let rest = after.trim_start();
    let mut chars = rest.chars();
    match chars.next()? {
        ')' => {
            let next = chars
                .as_str()
                .trim_start_matches([' ', '\t'])
                .chars()
                .next();
            next.map(|c| matches!(c, ',' | ']' | '\n' | ';' | '<'))
        }
        ',' => {
            let name = chars.as_str().trim_start();
            let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_'));
            match end {
                None => None,
                Some(0) => Some(name.starts_with(')')),
                Some(end) => name[end..].trim_start().chars().next().map(|c| c == '='),
            }
        }
        _ => Some(false),
    }
}
