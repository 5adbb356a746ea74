//! Structural tags: free text, and parts between tags that follow a constraint of their own.

use serde_json::{Map, Value};

use super::error::ConstraintError;
use super::lark::{ANY_TEXT, Specials, literal, until};
use super::schema::SchemaOptions;
use super::sources::Constraint;

/// Formats within each other.
const MAX_DEPTH: usize = 32;

type Written = Result<String, ConstraintError>;

/// Rewrite a structural tag as Lark: `{"format": …}`, or the older `{"structures": […], "triggers": […]}`.
pub(crate) fn to_lark(value: &Value, specials: &Specials, options: &SchemaOptions) -> Written {
    let map = value
        .as_object()
        .ok_or_else(|| ConstraintError::whole("must be an object"))?;
    let mut writer = Writer {
        specials,
        options,
        rules: Vec::new(),
        depth: 0,
    };
    let start = if map.contains_key("structures") {
        writer.older(map)?
    } else {
        let format = map
            .get("format")
            .ok_or_else(|| ConstraintError::new("format", "is missing"))?;
        writer
            .format(format, true)
            .map_err(|error| error.within("format"))?
    };
    let rules = writer.rules.join("\n");
    Ok(format!("start: {start}\n{rules}\n"))
}

struct Writer<'a> {
    specials: &'a Specials,
    options: &'a SchemaOptions,
    rules: Vec<String>,
    depth: usize,
}

/// One tag.
struct Tag {
    begin: String,
    /// Its content and end.
    rest: String,
}

impl Writer<'_> {
    /// Add a rule and return its name.
    fn rule(&mut self, body: &str) -> String {
        let name = format!("r{}", self.rules.len());
        self.rules.push(format!("{name}: {body}"));
        name
    }

    /// Write a format. `last`: nothing follows it.
    fn format(&mut self, value: &Value, last: bool) -> Written {
        let Some(map) = value.as_object() else {
            return Err(ConstraintError::whole("must be an object"));
        };
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(ConstraintError::whole("formats are nested too deep"));
        }
        let kind = string(map, "type")?;
        let written = match kind {
            "const_string" => Ok(self.specials.expression(string(map, "value")?)),
            "json_schema" | "regex" | "grammar" => self.constrained(map, kind),
            "any_text" if last => Ok(ANY_TEXT.to_owned()),
            "any_text" => Err(ConstraintError::new(
                "type",
                "any_text must be the last, or stand alone in a tag",
            )),
            "sequence" => Ok(self
                .elements(map, |index, count| last && index + 1 == count)?
                .join(" ")),
            "or" => Ok(self.elements(map, |_, _| last)?.join(" | ")),
            "tag" => {
                let tag = self.tag(map)?;
                Ok(format!(
                    "{} {}",
                    self.specials.expression(&tag.begin),
                    tag.rest
                ))
            }
            "triggered_tags" if last => self.triggered(map),
            "triggered_tags" => Err(ConstraintError::new(
                "type",
                "triggered_tags must be the last",
            )),
            "tags_with_separator" => self.separated(map),
            other => Err(ConstraintError::new(
                "type",
                format!("{other:?} is not supported"),
            )),
        };
        self.depth -= 1;
        written
    }

    /// Write a part that follows a constraint.
    fn constrained(&self, map: &Map<String, Value>, kind: &str) -> Written {
        let field = if kind == "regex" { "pattern" } else { kind };
        let constraint = match kind {
            "json_schema" => Constraint::json_schema(need(map, field)?, self.options),
            "regex" => Constraint::regex(string(map, field)?),
            _ => Constraint::grammar(string(map, field)?),
        };
        Ok(constraint.map_err(|error| error.within(field))?.as_rule())
    }

    /// Write formats as rules; `last` tells, from index and count, whether nothing follows one.
    fn elements(
        &mut self,
        map: &Map<String, Value>,
        last: impl Fn(usize, usize) -> bool,
    ) -> Result<Vec<String>, ConstraintError> {
        let elements = list(map, "elements")?;
        let count = elements.len();
        let rules = elements.iter().enumerate().map(|(index, element)| {
            self.format(element, last(index, count))
                .map(|body| self.rule(&body))
                .map_err(|error| error.within(&format!("elements.{index}")))
        });
        rules.collect()
    }

    fn tag(&mut self, map: &Map<String, Value>) -> Result<Tag, ConstraintError> {
        let begin = string(map, "begin")?.to_owned();
        let content = need(map, "content")?;
        let ends: Vec<&str> = match need(map, "end")? {
            Value::String(end) => vec![end],
            Value::Array(ends) => ends.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let [end] = ends[..] else {
            return Err(ConstraintError::new("end", "must be one string"));
        };
        if content.get("type").is_some_and(|kind| kind == "any_text") {
            if end.is_empty() {
                return Err(ConstraintError::new(
                    "end",
                    "must not be empty behind any_text",
                ));
            }
            let name = format!("r{}", self.rules.len());
            self.rules.push(until(end, self.specials, &name));
            return Ok(Tag { begin, rest: name });
        }
        let body = self
            .format(content, false)
            .map_err(|error| error.within("content"))?;
        let body = self.rule(&body);
        let rest = format!("{body} {}", self.specials.expression(end));
        Ok(Tag { begin, rest })
    }

    fn tags(&mut self, map: &Map<String, Value>) -> Result<Vec<Tag>, ConstraintError> {
        let tags = list(map, "tags")?;
        let mut written = Vec::new();
        for (index, tag) in tags.iter().enumerate() {
            let map = tag
                .as_object()
                .ok_or_else(|| ConstraintError::whole("must be an object"));
            let tag = map.and_then(|map| self.tag(map));
            written.push(tag.map_err(|error| error.within(&format!("tags.{index}")))?);
        }
        Ok(written)
    }

    fn triggered(&mut self, map: &Map<String, Value>) -> Written {
        let triggers: Vec<String> = list(map, "triggers")?
            .iter()
            .filter_map(|trigger| {
                trigger
                    .as_str()
                    .filter(|text| !text.is_empty())
                    .map(str::to_owned)
            })
            .collect();
        let tags = self.tags(map)?;
        let at_least_one = flag(map, "at_least_one")?;
        let stop_after_first = flag(map, "stop_after_first")?;
        let call = self.calls(&triggers, &tags)?;
        let text = self.rule(ANY_TEXT);
        Ok(match (at_least_one, stop_after_first) {
            (true, true) => call,
            (false, true) => format!("{call} | {text}"),
            (true, false) => format!("{call}+ {text}"),
            (false, false) => format!("{call}* {text}"),
        })
    }

    /// Any text up to a trigger, then the rest of a tag that begins with it.
    fn calls(&mut self, triggers: &[String], tags: &[Tag]) -> Written {
        let mut options = Vec::new();
        let mut used = 0;
        for trigger in triggers {
            let behind: Vec<String> = tags
                .iter()
                .filter_map(|tag| {
                    tag.begin
                        .strip_prefix(trigger.as_str())
                        .map(|rest| (rest, &tag.rest))
                })
                .map(|(begin, rest)| format!("{} {rest}", self.specials.expression(begin)))
                .collect();
            if behind.is_empty() {
                return Err(ConstraintError::new(
                    "triggers",
                    format!("no tag begins with {trigger:?}"),
                ));
            }
            used += behind.len();
            let name = format!("r{}", self.rules.len());
            self.rules.push(until(trigger, self.specials, &name));
            let behind = self.rule(&behind.join(" | "));
            options.push(format!("{name} {behind}"));
        }
        if used != tags.len() {
            return Err(ConstraintError::new(
                "triggers",
                "each tag must begin with exactly one trigger",
            ));
        }
        Ok(self.rule(&options.join(" | ")))
    }

    fn separated(&mut self, map: &Map<String, Value>) -> Written {
        let tags = self.tags(map)?;
        let separator = literal(string(map, "separator")?);
        let bodies: Vec<String> = tags
            .iter()
            .map(|tag| format!("{} {}", self.specials.expression(&tag.begin), tag.rest))
            .collect();
        let one = self.rule(&bodies.join(" | "));
        let many = if flag(map, "stop_after_first")? {
            one
        } else {
            self.rule(&format!("{one} ({separator} {one})*"))
        };
        Ok(if flag(map, "at_least_one")? {
            many
        } else {
            format!("{many}?")
        })
    }

    /// The older form: structures with a schema each, found by triggers.
    fn older(&mut self, map: &Map<String, Value>) -> Written {
        let mut tags = Vec::new();
        for (index, structure) in list(map, "structures")?.iter().enumerate() {
            let part = format!("structures.{index}");
            let structure = structure
                .as_object()
                .ok_or_else(|| ConstraintError::new(&part, "must be an object"))?;
            let read = || -> Result<(String, String, String), ConstraintError> {
                let schema = Constraint::json_schema(need(structure, "schema")?, self.options)
                    .map_err(|error| error.within("schema"))?;
                let (begin, end) = (string(structure, "begin")?, string(structure, "end")?);
                Ok((begin.to_owned(), schema.as_rule(), end.to_owned()))
            };
            let (begin, schema, end) = read().map_err(|error| error.within(&part))?;
            let body = self.rule(&schema);
            let rest = format!("{body} {}", self.specials.expression(&end));
            tags.push(Tag { begin, rest });
        }
        let triggers: Vec<String> = list(map, "triggers")?
            .iter()
            .filter_map(|trigger| {
                trigger
                    .as_str()
                    .filter(|text| !text.is_empty())
                    .map(str::to_owned)
            })
            .collect();
        let call = self.calls(&triggers, &tags)?;
        let text = self.rule(ANY_TEXT);
        Ok(format!("{call}* {text}"))
    }
}

fn need<'m>(map: &'m Map<String, Value>, name: &str) -> Result<&'m Value, ConstraintError> {
    map.get(name)
        .ok_or_else(|| ConstraintError::new(name, "is missing"))
}

fn string<'m>(map: &'m Map<String, Value>, name: &str) -> Result<&'m str, ConstraintError> {
    need(map, name)?
        .as_str()
        .ok_or_else(|| ConstraintError::new(name, "must be a string"))
}

fn list<'m>(map: &'m Map<String, Value>, name: &str) -> Result<&'m Vec<Value>, ConstraintError> {
    need(map, name)?
        .as_array()
        .filter(|items| !items.is_empty())
        .ok_or_else(|| ConstraintError::new(name, "must be a list that is not empty"))
}

fn flag(map: &Map<String, Value>, name: &str) -> Result<bool, ConstraintError> {
    match map.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(ConstraintError::new(name, "must be a boolean")),
    }
}
