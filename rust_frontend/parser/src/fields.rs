//! Arguments that stand in markers of their own, written as one growing JSON object.

use octavo_grammar::{Arguments, Trim, Untyped};

use crate::coerce::{coerce, escape, quoted};
use crate::event::Malformed;
use crate::sink::Sink;
use crate::tools::{Parameters, Types, object};

/// What is known of a parameter when its value begins.
#[derive(Debug, Clone)]
struct Value {
    types: Types,
    /// Text without a schema that is JSON is JSON.
    free: bool,
    /// The value is text for certain and goes out at once.
    streams: bool,
    /// The value is not shown.
    dropped: bool,
    /// The value may be the whole of the arguments.
    whole: bool,
    /// Text not yet shown.
    held: String,
    /// A first newline has been passed over, or there was none.
    begun: bool,
}

/// The object of one call.
#[derive(Debug)]
pub(crate) struct Fields {
    rules: Arguments,
    parameters: Option<Parameters>,
    opened: bool,
    seen: Vec<String>,
    key: Option<String>,
    is_text: Option<bool>,
    value: Option<Value>,
}

impl Fields {
    pub(crate) fn new(rules: Arguments, parameters: Option<Parameters>) -> Self {
        Self {
            rules,
            parameters,
            opened: false,
            seen: Vec::new(),
            key: None,
            is_text: None,
            value: None,
        }
    }

    /// A parameter is named; `is_text` is what an attribute says of its value.
    pub(crate) fn key(&mut self, name: &str, is_text: Option<bool>) {
        self.key = Some(name.to_owned());
        self.is_text = is_text;
    }

    /// Whether a key waits for its value.
    pub(crate) fn waits(&self) -> bool {
        self.key.is_some() && self.value.is_none()
    }

    /// The value begins. Without a key that can be one, it is not shown; nor is the second of a name.
    pub(crate) fn begin(&mut self, sink: &mut Sink) {
        let mut value = Value {
            types: Types::default(),
            free: self.rules.untyped == Untyped::Json,
            streams: false,
            dropped: false,
            whole: false,
            held: String::new(),
            begun: false,
        };
        let Some(key) = self
            .key
            .clone()
            .filter(|key| plain(key) && !self.seen.contains(key))
        else {
            value.dropped = true;
            self.value = Some(value);
            return;
        };
        let known = self
            .parameters
            .as_ref()
            .and_then(|parameters| parameters.types(&key));
        value.types = known.unwrap_or_default();
        if let Some(is_text) = self.is_text {
            value.free = !is_text;
        }
        let named = self.parameters.as_ref().is_some_and(Parameters::any);
        value.whole =
            named && known.is_none() && self.seen.is_empty() && self.rules.unwrap.contains(&key);
        value.dropped = named && known.is_none() && !value.whole && self.rules.drop_unknown;
        if named && known.is_none() && self.is_text.is_none() {
            value.free = true;
        }
        let text = value.types == Types::STRING || (value.types.unknown() && !value.free);
        value.streams = text && !value.whole && !value.dropped && !self.rules.cdata;
        if value.streams {
            self.write_key(sink, &key);
            sink.args("\"");
        }
        self.value = Some(value);
    }

    fn write_key(&mut self, sink: &mut Sink, key: &str) {
        sink.args(if self.opened { ", " } else { "{" });
        self.opened = true;
        self.seen.push(key.to_owned());
        sink.args(&quoted(key));
        sink.args(": ");
    }

    /// More of the value.
    pub(crate) fn text(&mut self, sink: &mut Sink, text: &str, trim: Trim) {
        let Some(value) = &mut self.value else {
            return;
        };
        let mut text = text;
        if !value.begun {
            match trim {
                Trim::Newline => text = text.strip_prefix('\n').unwrap_or(text),
                Trim::Both => text = text.trim_start(),
                Trim::None | Trim::End => {}
            }
            // White space in front goes on until a letter comes.
            value.begun = trim != Trim::Both || !text.is_empty();
        }
        value.held.push_str(text);
        if !value.streams {
            return;
        }
        // White space at the end may be layout.
        let shown = trimmed(&value.held, trim).len();
        let mut out = String::new();
        escape(&value.held[..shown], &mut out);
        value.held.drain(..shown);
        sink.args(&out);
    }

    /// The value is complete.
    pub(crate) fn end(&mut self, sink: &mut Sink, trim: Trim) {
        let Some(mut value) = self.value.take() else {
            return;
        };
        let key = self.key.take().unwrap_or_default();
        value.held.truncate(trimmed(&value.held, trim).len());
        if value.streams {
            let mut out = String::new();
            escape(&value.held, &mut out);
            out.push('"');
            sink.args(&out);
        } else if value.dropped {
            sink.malformed(Malformed::Parameter, &format!("{key} {}", value.held));
        } else {
            self.end_held(sink, &key, &value);
        }
    }

    fn end_held(&mut self, sink: &mut Sink, key: &str, value: &Value) {
        let text = if self.rules.cdata {
            strip_cdata(&value.held)
        } else {
            &value.held
        };
        if value.whole {
            let json = coerce(text, Types::OBJECT, true);
            if let Some(map) = object(&json) {
                for (key, value) in map {
                    self.write_key(sink, &key);
                    sink.args(&value.to_string());
                }
                return;
            }
        }
        self.write_key(sink, key);
        sink.args(&coerce(text, value.types, value.free));
    }

    /// The call ends; `whole` says that what is open may be completed.
    pub(crate) fn close(&mut self, sink: &mut Sink, whole: bool, trim: Trim) {
        if self.value.is_some() && whole {
            self.end(sink, trim);
        }
        if let Some(key) = self.key.take() {
            sink.malformed(Malformed::Parameter, &key);
        }
        if whole {
            sink.args(if self.opened { "}" } else { "{}" });
        }
    }
}

/// A text without what is layout at its end.
fn trimmed(text: &str, trim: Trim) -> &str {
    match trim {
        Trim::None => text,
        Trim::Newline => text.strip_suffix('\n').unwrap_or(text),
        Trim::End | Trim::Both => text.trim_end(),
    }
}

fn strip_cdata(text: &str) -> &str {
    let inner = text
        .trim()
        .strip_prefix("<![CDATA[")
        .and_then(|rest| rest.strip_suffix("]]>"));
    inner.unwrap_or(text)
}

/// Whether a text can be the name of a parameter.
pub(crate) fn plain(name: &str) -> bool {
    !name.is_empty()
        && !name.contains(|c: char| c.is_whitespace() || c == '>')
        && !name.starts_with('<')
}
