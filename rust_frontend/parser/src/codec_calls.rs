//! `json_object_with_name`: one JSON object, or a list of them, that holds a call's name and arguments.

use octavo_grammar::State;
use serde_json::Value;

use crate::codec::Step;
use crate::event::Finish;
use crate::json::{JsonScan, Scan, Unescape};
use crate::sink::{Sink, Verdict};

/// The longest key or name; a longer one is none.
const MAX_NAME: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Before the first bracket.
    Start,
    /// Inside the list, between objects.
    List,
    /// Inside an object, before a key.
    Object,
    /// Inside a key.
    Key,
    /// After a key.
    Colon,
    /// Before a value.
    Before,
    /// Inside the name.
    Name,
    /// Inside the arguments.
    Args,
    /// Inside arguments that are text.
    Text,
    /// Inside another value.
    Other,
    /// After an object that stands alone.
    After,
}

/// What the keys mean.
#[derive(Debug, Clone)]
struct Keys {
    name: Vec<String>,
    args: Vec<String>,
    name_is_key: bool,
    require_args: bool,
    string_args: bool,
    brackets: bool,
    separators: String,
}

/// The codec.
#[derive(Debug)]
pub(crate) struct JsonCalls {
    keys: Keys,
    at: At,
    list: bool,
    text: String,
    key: String,
    scan: JsonScan,
    unescape: Unescape,
    name: Option<String>,
    opened: bool,
    seen_args: bool,
    /// Arguments that came before the name.
    held: String,
    committed: bool,
    separated: bool,
    /// What was read behind an object that stands alone.
    gap: String,
}

impl JsonCalls {
    pub(crate) fn new(state: &State) -> Self {
        Self {
            keys: Keys {
                name: state.name_keys.clone(),
                args: state.args_keys.clone(),
                name_is_key: state.name_is_key,
                require_args: state.require_args,
                string_args: state.string_args,
                brackets: state.brackets,
                separators: state.separators.clone(),
            },
            at: At::Start,
            list: false,
            text: String::new(),
            key: String::new(),
            scan: JsonScan::default(),
            unescape: Unescape::default(),
            name: None,
            opened: false,
            seen_args: false,
            held: String::new(),
            committed: false,
            separated: false,
            gap: String::new(),
        }
    }

    pub(crate) fn in_string(&self) -> bool {
        match self.at {
            At::Key | At::Name | At::Text => true,
            At::Args | At::Other => self.scan.in_string(),
            _ => false,
        }
    }

    pub(crate) fn committed(&self) -> bool {
        self.committed
    }

    pub(crate) fn push(&mut self, c: char, sink: &mut Sink) -> Step {
        match self.at {
            At::Key | At::Name => return self.push_name(c, sink),
            At::Args | At::Other => return self.push_value(c, sink),
            At::Text => return self.push_text(c, sink),
            At::After => return self.push_after(c),
            _ if c.is_whitespace() => return Step::More,
            _ => {}
        }
        match (self.at, c) {
            (At::Start, '[') if self.keys.brackets => {
                self.list = true;
                self.at = At::List;
            }
            (At::Start | At::List, '{') => self.begin(),
            (At::List, ',') => {}
            (At::List, ']') => return Step::Done,
            (At::Object, ',') => {}
            (At::Object, '"') => {
                self.text.clear();
                self.at = At::Key;
            }
            (At::Object, '}') => return self.end(sink),
            (At::Colon, ':') => self.at = At::Before,
            (At::Before, _) => return self.value(c, sink),
            _ => return Step::Fail,
        }
        Step::More
    }

    fn begin(&mut self) {
        self.at = At::Object;
        self.name = None;
        self.opened = false;
        self.seen_args = false;
        self.held.clear();
    }

    /// The first character of a value.
    fn value(&mut self, c: char, sink: &mut Sink) -> Step {
        let is_name = self.keys.name.contains(&self.key) && self.name.is_none();
        let is_args =
            self.keys.name_is_key || (self.keys.args.contains(&self.key) && !self.seen_args);
        self.scan = JsonScan::default();
        if self.keys.name_is_key && self.name.is_none() {
            self.name = Some(self.key.clone());
        }
        if is_name && !self.keys.name_is_key {
            if c != '"' {
                return Step::Fail;
            }
            self.text.clear();
            self.at = At::Name;
            return Step::More;
        }
        if !is_args {
            self.at = At::Other;
            return self.push_value(c, sink);
        }
        self.seen_args = true;
        if self.name.is_some() && !self.opened && !self.open(sink) {
            return Step::Fail;
        }
        if c == '"' && self.keys.string_args {
            self.at = At::Text;
            self.unescape = Unescape::default();
            return Step::More;
        }
        self.at = At::Args;
        self.push_value(c, sink)
    }

    fn push_name(&mut self, c: char, sink: &mut Sink) -> Step {
        let escaped = self
            .text
            .bytes()
            .rev()
            .take_while(|byte| *byte == b'\\')
            .count()
            % 2
            == 1;
        if c != '"' || escaped {
            self.text.push(c);
            return if self.text.len() > MAX_NAME {
                Step::Fail
            } else {
                Step::More
            };
        }
        let Ok(Value::String(text)) = serde_json::from_str(&format!("\"{}\"", self.text)) else {
            return Step::Fail;
        };
        if self.at == At::Key {
            self.key = text;
            self.at = At::Colon;
            return Step::More;
        }
        if text.is_empty() {
            return Step::Fail;
        }
        self.name = Some(text);
        self.at = At::Object;
        let ready = !self.keys.require_args || self.seen_args;
        if ready && !self.opened && !self.open(sink) {
            Step::Fail
        } else {
            Step::More
        }
    }

    /// Open the call under its name; false where it is to be text.
    fn open(&mut self, sink: &mut Sink) -> bool {
        let name = self.name.clone().unwrap_or_default();
        if sink.open(&name, None) == Verdict::Text {
            return false;
        }
        self.opened = true;
        self.committed = true;
        let held = std::mem::take(&mut self.held);
        sink.args(&held);
        true
    }

    fn write(&mut self, text: &str, sink: &mut Sink) {
        if self.opened {
            sink.args(text);
        } else {
            self.held.push_str(text);
        }
    }

    fn push_value(&mut self, c: char, sink: &mut Sink) -> Step {
        let scanned = self.scan.push(c);
        if scanned != Scan::Before && self.at == At::Args {
            self.write(c.encode_utf8(&mut [0; 4]), sink);
        }
        match scanned {
            Scan::More => Step::More,
            Scan::Last => {
                self.at = At::Object;
                Step::More
            }
            Scan::Before => {
                self.at = At::Object;
                self.push(c, sink)
            }
        }
    }

    /// Arguments as JSON inside of a string.
    fn push_text(&mut self, c: char, sink: &mut Sink) -> Step {
        if c == '"' && !self.unescape.in_escape() {
            self.at = At::Object;
            return Step::More;
        }
        let mut out = String::new();
        self.unescape.push(c, &mut out);
        self.write(&out, sink);
        Step::More
    }

    fn end(&mut self, sink: &mut Sink) -> Step {
        if self.name.is_none() || (self.keys.require_args && !self.seen_args) {
            return Step::Fail;
        }
        if !self.opened && !self.open(sink) {
            return Step::Fail;
        }
        sink.close();
        self.opened = false;
        self.separated = false;
        self.at = if self.list { At::List } else { At::After };
        Step::More
    }

    fn push_after(&mut self, c: char) -> Step {
        if c == '{' && (self.separated || self.keys.separators.contains('\n')) {
            self.gap.clear();
            self.begin();
            return Step::More;
        }
        self.separated |= self.keys.separators.contains(c);
        if !c.is_whitespace() && !self.keys.separators.contains(c) {
            return Step::Before;
        }
        self.gap.push(c);
        Step::More
    }

    pub(crate) fn gap(&mut self) -> String {
        std::mem::take(&mut self.gap)
    }

    pub(crate) fn finish(&mut self, sink: &mut Sink, finish: Finish) {
        if self.opened {
            sink.close_cut(finish == Finish::Stop);
            self.opened = false;
        }
    }
}
