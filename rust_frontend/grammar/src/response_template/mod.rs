//! Response templates of Hugging Face checkpoints, read as formats.
//!
//! A template says by which texts a message's fields begin and end. Thoughts, answer and calls are taken from it; what it
//! asks that a format cannot say is refused by name. White space at the ends of the answer stays.

mod calls;
mod pattern;

use serde_json::{Map, Value, json};

use self::pattern::{Piece, ways};
use crate::error::FormatError;
use crate::format::Format;

/// The name by which a server chooses it.
pub const NAME: &str = "response_template";

/// Names of the field that holds thoughts.
const THOUGHTS: [&str; 3] = ["thinking", "reasoning", "reasoning_content"];
const KEYS: [&str; 5] = [
    "version",
    "defaults",
    "fields",
    "start_anchor",
    "start_anchor_pattern",
];
const FIELD_KEYS: [&str; 11] = [
    "open",
    "open_pattern",
    "close",
    "close_pattern",
    "content",
    "content_args",
    "repeats",
    "join",
    "optional",
    "transform",
    "transform_each",
];

type Made<T> = Result<T, (String, String)>;

impl Format {
    /// Read a response template: the object itself, or a `tokenizer_config.json` that holds one.
    ///
    /// # Errors
    /// What is wrong with it, or what of it no format can say.
    pub fn from_response_template(file: &str, value: &Value) -> Result<Self, FormatError> {
        let template = value.get(NAME).unwrap_or(value);
        let fail = |(key, message): (String, String)| FormatError {
            file: file.to_owned(),
            line: 1,
            key: if key.is_empty() {
                NAME.to_owned()
            } else {
                format!("{NAME}.{key}")
            },
            message,
        };
        let made = Making::read(template).map_err(fail)?;
        let format: Self = serde_json::from_value(made)
            .map_err(|error| fail((String::new(), error.to_string())))?;
        crate::validate::validate(file, "", &format)?;
        Ok(format)
    }
}

/// A format in the making, as the TOML file would have it.
#[derive(Default)]
struct Making {
    markers: Map<String, Value>,
    states: Map<String, Value>,
    render: Map<String, Value>,
    arguments: Map<String, Value>,
    starts_in_thoughts: bool,
    /// The state behind the beginning of a call.
    first: Option<&'static str>,
}

/// How a field begins.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Opening {
    /// Pieces in their order.
    pieces: Vec<Piece>,
}

impl Making {
    fn read(template: &Value) -> Made<Value> {
        let map = object(template, "")?;
        known(map, &KEYS, "")?;
        let fields = object(map.get("fields").unwrap_or(&Value::Null), "fields")?;
        let mut making = Self::default();
        making.state("content", json!({ "kind": "content" }));
        let mut thinks = false;
        let mut has_calls = false;
        for (name, field) in fields {
            let path = format!("fields.{name}");
            let field = object(field, &path)?;
            known(field, &FIELD_KEYS, &path)?;
            match name.as_str() {
                "content" => making.answer(field, &path)?,
                "tool_calls" => {
                    has_calls = true;
                    calls::read(&mut making, field, &path)?;
                }
                other if THOUGHTS.contains(&other) => {
                    thinks = true;
                    making.thoughts(field, &path)?;
                }
                _ => {
                    let message = "is none of thinking, content and tool_calls, which is all that an API shows";
                    return Err((path, message.to_owned()));
                }
            }
        }
        making.cross();
        let names = |wanted: bool| if wanted { json!([NAME]) } else { json!([]) };
        Ok(json!({
            "name": NAME,
            "doc": "From the checkpoint's response template.",
            "tool": names(has_calls),
            "reasoning": names(thinks),
            "start": if making.starts_in_thoughts { "reasoning" } else { "content" },
            "turns": anchors(map)?,
            "arguments": making.arguments,
            "markers": making.markers,
            "states": making.states,
            "render": making.render,
        }))
    }

    fn marker(&mut self, name: &str, texts: &[String]) {
        self.markers.insert(name.to_owned(), json!(texts));
    }

    fn state(&mut self, name: &str, value: Value) {
        self.states.insert(name.to_owned(), value);
    }

    /// Lead from a state by a marker to another.
    fn edge(&mut self, state: &str, marker: &str, to: Value) {
        if let Some(Value::Object(state)) = self.states.get_mut(state) {
            let on = state
                .entry("on")
                .or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(on) = on {
                on.insert(marker.to_owned(), to);
            }
        }
    }

    /// The answer: between its own markers, or all that is nothing else.
    fn answer(&mut self, field: &Map<String, Value>, path: &str) -> Made<()> {
        text_field(field, path)?;
        let open = texts(&openings(field, path)?, path)?.0;
        let close = closings(field, path)?;
        if !open.is_empty() {
            self.marker("answer_open", &open);
        }
        if !close.is_empty() {
            self.marker("answer_close", &close);
            self.edge("content", "answer_close", json!("content"));
        }
        let shown = |texts: &[String]| texts.first().cloned().unwrap_or_default();
        let content = if open.is_empty() {
            "{text}".to_owned()
        } else {
            format!("{}{{text}}{}", shown(&open), shown(&close))
        };
        self.render.insert("content".to_owned(), json!(content));
        Ok(())
    }

    fn thoughts(&mut self, field: &Map<String, Value>, path: &str) -> Made<()> {
        text_field(field, path)?;
        let (open, begins) = texts(&openings(field, path)?, path)?;
        let close = closings(field, path)?;
        if close.is_empty() {
            return Err((path.to_owned(), "thoughts need a `close`".to_owned()));
        }
        self.starts_in_thoughts = begins || open.is_empty();
        let strip = field
            .get("content_args")
            .and_then(|args| args.get("strip"))
            .is_none_or(|strip| *strip != Value::Bool(false));
        let trim = if strip { "both" } else { "none" };
        self.state("reasoning", json!({ "kind": "reasoning", "trim": trim }));
        self.marker("think_close", &close);
        self.edge("reasoning", "think_close", json!("content"));
        let shown = if self.starts_in_thoughts {
            format!("{{text}}{}", close[0])
        } else {
            format!("{}{{text}}{}", open[0], close[0])
        };
        self.render.insert("reasoning".to_owned(), json!(shown));
        if !open.is_empty() {
            self.marker("think_open", &open);
        }
        Ok(())
    }

    /// Lead from field to field.
    fn cross(&mut self) {
        let call = self.first.unwrap_or_default();
        for (marker, to) in [
            ("think_open", "reasoning"),
            ("answer_open", "content"),
            ("call_open", call),
        ] {
            if self.markers.contains_key(marker) {
                self.edge("content", marker, json!(to));
                self.edge("reasoning", marker, json!(to));
            }
        }
    }
}

fn object<'v>(value: &'v Value, path: &str) -> Made<&'v Map<String, Value>> {
    value
        .as_object()
        .ok_or_else(|| (path.to_owned(), "must be an object".to_owned()))
}

fn known(map: &Map<String, Value>, keys: &[&str], path: &str) -> Made<()> {
    match map.keys().find(|key| !keys.contains(&key.as_str())) {
        Some(key) => Err((
            within(path, key),
            "is no key of response templates".to_owned(),
        )),
        None => Ok(()),
    }
}

fn within(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

/// Check that a field is text.
fn text_field(field: &Map<String, Value>, path: &str) -> Made<()> {
    for (key, plain) in [("content", json!("text")), ("transform", Value::Null)] {
        if field.get(key).is_some_and(|value| *value != plain) {
            return Err((
                within(path, key),
                "must be left out: the field is text".to_owned(),
            ));
        }
    }
    Ok(())
}

/// A text or a list of texts under a key.
fn literals(map: &Map<String, Value>, key: &str, path: &str) -> Made<Option<Vec<String>>> {
    let texts: Vec<String> = match map.get(key) {
        None => return Ok(None),
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(several)) => several
            .iter()
            .filter_map(|text| text.as_str().map(str::to_owned))
            .collect(),
        Some(_) => Vec::new(),
    };
    if texts.is_empty() || texts.iter().any(String::is_empty) {
        return Err((
            within(path, key),
            "must be a text or a list of texts, none empty".to_owned(),
        ));
    }
    Ok(Some(texts))
}

fn expression(map: &Map<String, Value>, key: &str, path: &str) -> Made<Option<Vec<Vec<Piece>>>> {
    let Some(pattern) = map.get(key) else {
        return Ok(None);
    };
    let fail = |message: String| (within(path, key), message);
    let pattern = pattern
        .as_str()
        .ok_or_else(|| fail("must be a regular expression".to_owned()))?;
    ways(pattern).map(Some).map_err(fail)
}

/// How a field begins, in all ways.
fn openings(field: &Map<String, Value>, path: &str) -> Made<Vec<Opening>> {
    if let Some(texts) = literals(field, "open", path)? {
        return Ok(texts
            .into_iter()
            .map(|text| Opening {
                pieces: vec![Piece::Text(text)],
            })
            .collect());
    }
    Ok(expression(field, "open_pattern", path)?
        .unwrap_or_default()
        .into_iter()
        .map(|pieces| Opening { pieces })
        .collect())
}

/// The texts that end a field; empty where only the end of the answer does.
fn closings(field: &Map<String, Value>, path: &str) -> Made<Vec<String>> {
    if let Some(texts) = literals(field, "close", path)? {
        return Ok(texts);
    }
    let found = expression(field, "close_pattern", path)?.unwrap_or_default();
    let all: Vec<Opening> = found.into_iter().map(|pieces| Opening { pieces }).collect();
    Ok(texts(&all, &within(path, "close_pattern"))?.0)
}

/// The texts of openings without names, and whether the field also begins with the answer.
fn texts(openings: &[Opening], path: &str) -> Made<(Vec<String>, bool)> {
    let (mut out, mut begins) = (Vec::new(), false);
    for opening in openings {
        let mut forms = vec![String::new()];
        for piece in &opening.pieces {
            match piece {
                Piece::Begin => begins = true,
                Piece::Text(text) => forms.iter_mut().for_each(|form| form.push_str(text)),
                Piece::Space => {
                    forms = forms
                        .iter()
                        .flat_map(|form| {
                            ["", "\n", "\n\n", " "].map(|space| format!("{form}{space}"))
                        })
                        .collect();
                }
                // What stands before a message's mark is not shown in any case where it is a mark itself.
                Piece::Anything => forms = vec![String::new()],
                Piece::Named(name) => {
                    let message = format!("has the group {name}, which only calls can use");
                    return Err((path.to_owned(), message));
                }
            }
        }
        out.extend(forms.into_iter().filter(|form| !form.trim().is_empty()));
    }
    out.sort_by_key(String::len);
    out.dedup();
    Ok((out, begins))
}

/// The texts that begin the model's turn in a prompt.
fn anchors(map: &Map<String, Value>) -> Made<Vec<String>> {
    if let Some(texts) = literals(map, "start_anchor", "")? {
        return Ok(texts);
    }
    let found = expression(map, "start_anchor_pattern", "")?;
    let all: Vec<Opening> = found
        .unwrap_or_default()
        .into_iter()
        .map(|pieces| Opening { pieces })
        .collect();
    let (out, _) = texts(&all, "start_anchor_pattern")?;
    if out.is_empty() {
        let message =
            "is missing, and so is start_anchor_pattern: one says where the answer begins";
        return Err(("start_anchor".to_owned(), message.to_owned()));
    }
    Ok(out)
}
