//! `xml_tree`: arguments as nested elements, each tag behind a token. An argument is held until it is complete.

use serde_json::Value;

use crate::codec::Step;
use crate::coerce::{coerce, quoted};
use crate::event::{Finish, Malformed};
use crate::sink::Sink;
use crate::tools::{Parameters, Types, inner, types_in};

/// How deep elements may nest; deeper ones are text.
const MAX_DEPTH: usize = 32;
/// The longest name of an element.
const MAX_NAME: usize = 256;

/// One open element.
#[derive(Debug, Default)]
struct Element {
    name: String,
    text: String,
    children: Vec<Element>,
}

/// The codec.
#[derive(Debug)]
pub(crate) struct Tree {
    token: String,
    parameters: Parameters,
    /// What may become a token.
    partial: String,
    /// The tag behind a token.
    tag: Option<String>,
    open: Vec<Element>,
    count: usize,
}

impl Tree {
    pub(crate) fn new(token: &str, parameters: Option<Parameters>) -> Self {
        Self {
            token: token.to_owned(),
            parameters: parameters.unwrap_or_default(),
            partial: String::new(),
            tag: None,
            open: Vec::new(),
            count: 0,
        }
    }

    pub(crate) fn push(&mut self, c: char, sink: &mut Sink) -> Step {
        if let Some(tag) = &mut self.tag {
            tag.push(c);
            if c == '>' || tag.len() > MAX_NAME {
                let tag = self.tag.take().unwrap_or_default();
                self.end_tag(&tag, sink);
            }
            return Step::More;
        }
        self.partial.push(c);
        while !self.token.starts_with(&self.partial) {
            let first = self.partial.remove(0);
            self.text(first, sink);
        }
        if self.partial == self.token {
            self.partial.clear();
            self.tag = Some(String::new());
        }
        Step::More
    }

    fn text(&mut self, c: char, sink: &mut Sink) {
        match self.open.last_mut() {
            Some(element) => element.text.push(c),
            None => sink.malformed(Malformed::Stray, c.encode_utf8(&mut [0; 4])),
        }
    }

    fn end_tag(&mut self, tag: &str, sink: &mut Sink) {
        let name = tag.strip_prefix('<').and_then(|tag| tag.strip_suffix('>'));
        match name {
            Some(name) if name.starts_with('/') => self.close(&name[1..], sink),
            Some(name) if self.open.len() < MAX_DEPTH && !name.is_empty() => {
                self.open.push(Element {
                    name: name.trim().to_owned(),
                    ..Element::default()
                });
            }
            _ => tag.chars().for_each(|c| self.text(c, sink)),
        }
    }

    /// Close the element of this name, and those inside of it that are still open.
    fn close(&mut self, name: &str, sink: &mut Sink) {
        let Some(at) = self
            .open
            .iter()
            .rposition(|element| element.name == name.trim())
        else {
            sink.malformed(Malformed::Stray, name);
            return;
        };
        while self.open.len() > at {
            self.close_last(sink);
        }
    }

    fn close_last(&mut self, sink: &mut Sink) {
        let Some(element) = self.open.pop() else {
            return;
        };
        if !element.children.is_empty() {
            sink.malformed(Malformed::Stray, &element.text);
        }
        if let Some(parent) = self.open.last_mut() {
            parent.children.push(element);
            return;
        }
        let root = self.parameters.schema();
        let schema = inner(root, root, Some(&element.name));
        let json = json(root, schema, &element);
        sink.args(if self.count == 0 { "{" } else { ", " });
        self.count += 1;
        sink.args(&quoted(&element.name));
        sink.args(": ");
        sink.args(&json);
    }

    pub(crate) fn finish(&mut self, sink: &mut Sink, finish: Finish) {
        if let Some(tag) = self.tag.take() {
            sink.malformed(Malformed::Cut, &tag);
        }
        for c in std::mem::take(&mut self.partial).chars() {
            self.text(c, sink);
        }
        if finish != Finish::Stop {
            return;
        }
        while !self.open.is_empty() {
            self.close_last(sink);
        }
        sink.args(if self.count == 0 { "{}" } else { "}" });
    }
}

/// Return JSON for an element, by the schema where it says something.
fn json(root: &Value, schema: &Value, element: &Element) -> String {
    let types = types_in(root, schema);
    let list = types.has(Types::ARRAY) && !types.has(Types::OBJECT);
    if element.children.is_empty() {
        return match element.text.trim() {
            "" if list => "[]".to_owned(),
            "" if types == Types::OBJECT => "{}".to_owned(),
            _ => coerce(&element.text, types, false),
        };
    }
    if list {
        let schema = inner(root, schema, None);
        let items: Vec<String> = element
            .children
            .iter()
            .map(|child| json(root, schema, child))
            .collect();
        return format!("[{}]", items.join(", "));
    }
    let mut fields: Vec<(&str, Vec<String>)> = Vec::new();
    for child in &element.children {
        let value = json(root, inner(root, schema, Some(&child.name)), child);
        match fields.iter_mut().find(|(name, _)| *name == child.name) {
            Some((_, values)) => values.push(value),
            None => fields.push((&child.name, vec![value])),
        }
    }
    let fields = fields.iter().map(|(name, values)| match values.as_slice() {
        [value] => format!("{}: {value}", quoted(name)),
        values => format!("{}: [{}]", quoted(name), values.join(", ")),
    });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
}
