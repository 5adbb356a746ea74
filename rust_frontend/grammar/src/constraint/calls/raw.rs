//! Values between tags, without quotes: in the form of parameters, and as a tree of elements.

use serde_json::{Map, Value, json};

use super::values::{Style, Values, items_between, properties};
use crate::constraint::error::ConstraintError;
use crate::constraint::lark::{ANY_TEXT, literal};
use crate::constraint::parts::{Part, constants, kinds, leaf, parts, unsupported};
use crate::constraint::rules::Rules;
use crate::constraint::texts::bounds;

/// Elements within each other.
const MAX_DEPTH: usize = 16;

/// What stands behind a value.
#[derive(Debug, Clone, Default)]
pub(super) struct End {
    /// Layout before the marker.
    pub(super) lead: String,
    /// The marker that ends the value.
    pub(super) marker: String,
    /// What follows the marker.
    pub(super) tail: String,
    /// Other markers that would end it.
    pub(super) without: Vec<String>,
}

impl End {
    /// Find in the text behind a value which marker ends it.
    ///
    /// # Errors
    /// A text without a marker: nothing would end the value.
    pub(super) fn find(after: &str, markers: &[String]) -> Result<Self, ConstraintError> {
        let found = markers
            .iter()
            .filter_map(|marker| after.find(marker.as_str()).map(|at| (at, marker)));
        let (at, marker) = found
            .min_by_key(|(at, marker)| (*at, usize::MAX - marker.len()))
            .ok_or_else(|| ConstraintError::whole("nothing ends a value in this output format"))?;
        Ok(Self {
            lead: after[..at].to_owned(),
            marker: marker.clone(),
            tail: after[at + marker.len()..].to_owned(),
            without: markers.to_vec(),
        })
    }

    fn whole(&self) -> String {
        format!("{}{}{}", self.lead, self.marker, self.tail)
    }
}

/// One way to write a value: of which type it is, and the rule of it with its end.
#[derive(Debug, Clone)]
pub(super) struct Written {
    pub(super) kind: &'static str,
    pub(super) rule: String,
}

/// Writes the values of one lowered document.
pub(super) struct Raw<'r, 'a> {
    pub(super) rules: &'r mut Rules<'a>,
    pub(super) root: &'r Value,
    /// The token before each tag where values are trees; else what is no text is JSON.
    pub(super) token: Option<&'r str>,
    pub(super) depth: usize,
}

type All = Result<Vec<Written>, ConstraintError>;

impl Raw<'_, '_> {
    /// All ways to write a value of a schema.
    ///
    /// # Errors
    /// The keyword that cannot be enforced.
    pub(super) fn value(&mut self, schema: &Value, end: &End) -> All {
        if self.depth > MAX_DEPTH {
            return Err(unsupported("$ref"));
        }
        let found = parts(self.root, schema, true)?;
        let mut admitted = Vec::new();
        for part in &found {
            match part {
                Part::Plain(plain) => admitted.extend(types(self.root, plain)?),
                Part::Any | Part::Reference(_) => {
                    return Ok(vec![self.any(end)]);
                }
            }
        }
        let free = |part: &Part| matches!(part, Part::Plain(plain) if plain.len() == 1 && kinds(plain).contains(&"string"));
        let bare = |part: &Part| matches!(part, Part::Plain(plain) if plain.len() == 1 && plain.contains_key("type"));
        let scalars = admitted
            .iter()
            .all(|kind| !["array", "object"].contains(kind));
        if found.iter().any(free) && found.iter().all(bare) && scalars {
            // Whatever the text is read as, it fits.
            return Ok(vec![self.any(end)]);
        }
        let mixed = admitted.iter().any(|kind| *kind != "string");
        let mut out = Vec::new();
        for part in found {
            if let Part::Plain(plain) = part {
                self.plain(&plain, mixed, &admitted, end, &mut out)?;
            }
        }
        if out.is_empty() {
            return Err(ConstraintError::whole("no value satisfies it"));
        }
        Ok(out)
    }

    fn any(&mut self, end: &End) -> Written {
        self.text(None, end)
    }

    /// Text up to the end.
    fn text(&mut self, body: Option<&str>, end: &End) -> Written {
        let marker = match body {
            None => end.marker.clone(),
            Some(_) => format!("{}{}", end.lead, end.marker),
        };
        let text = self.rules.until(&marker, &end.without, body);
        let rule = if end.tail.is_empty() {
            text
        } else {
            format!("{text} {}", self.rules.specials.expression(&end.tail))
        };
        Written {
            kind: "string",
            rule: self.rules.rule(&rule),
        }
    }

    fn plain(
        &mut self,
        plain: &Map<String, Value>,
        mixed: bool,
        admitted: &[&'static str],
        end: &End,
        out: &mut Vec<Written>,
    ) -> Result<(), ConstraintError> {
        if let Some(values) = constants(self.root, plain)? {
            return self.constants(&values, mixed, end, out);
        }
        for kind in kinds(plain) {
            let rule = match kind {
                "string" => {
                    let mut body = bounds(self.rules, plain)?;
                    if mixed {
                        let any = body.as_deref().unwrap_or(ANY_TEXT);
                        body = Some(self.rules.terminal(&format!("{any} & {}", no_value())));
                    }
                    out.push(self.text(body.as_deref(), end));
                    continue;
                }
                "array" | "object" if self.token.is_some() => {
                    self.tree(plain, kind, admitted, end)?
                }
                "boolean" => self.ended(r#"("true" | "false")"#, end),
                "null" => self.ended(r#""null""#, end),
                "array" | "object" => {
                    let style = Style::Json(&end.without);
                    let value = Values::new(self.rules, style, self.root).composite(plain, kind)?;
                    self.ended(&value, end)
                }
                _ => {
                    let mut map = plain.clone();
                    map.insert("type".to_owned(), json!(kind));
                    let body = leaf(self.root, &map).as_rule();
                    let value = self.rules.rule(&body);
                    self.ended(&value, end)
                }
            };
            let rule = self.rules.rule(&rule);
            out.push(Written { kind, rule });
        }
        Ok(())
    }

    fn ended(&self, value: &str, end: &End) -> String {
        format!("{value} {}", self.rules.specials.expression(&end.whole()))
    }

    fn constants(
        &mut self,
        values: &[Value],
        mixed: bool,
        end: &End,
        out: &mut Vec<Written>,
    ) -> Result<(), ConstraintError> {
        for value in values {
            let (text, kind) = match value {
                Value::String(text) => {
                    if mixed && reads_as_value(text) {
                        return Err(unsupported("enum"));
                    }
                    (text.clone(), "string")
                }
                Value::Array(_) | Value::Object(_) if self.token.is_some() => {
                    return Err(unsupported("enum"));
                }
                other => (other.to_string(), kind_of(other)),
            };
            if end
                .without
                .iter()
                .any(|marker| text.contains(marker.as_str()))
            {
                return Err(unsupported("enum"));
            }
            let rule = self.ended(&literal(&text), end);
            let rule = self.rules.rule(&rule);
            out.push(Written { kind, rule });
        }
        Ok(())
    }

    /// A list or an object as elements, with its end.
    fn tree(
        &mut self,
        plain: &Map<String, Value>,
        kind: &str,
        admitted: &[&'static str],
        end: &End,
    ) -> Result<String, ConstraintError> {
        if admitted.iter().any(|other| *other != kind) {
            // An element without anything inside would be read as the other type.
            return Err(unsupported("anyOf"));
        }
        self.depth += 1;
        let inside = if kind == "array" {
            self.list(plain)
        } else {
            self.elements(plain)
        };
        self.depth -= 1;
        Ok(self.ended(&inside?, end))
    }

    fn list(&mut self, plain: &Map<String, Value>) -> Result<String, ConstraintError> {
        if plain.contains_key("prefixItems") {
            return Err(unsupported("prefixItems"));
        }
        let any = Value::Bool(true);
        let items = match plain.get("items") {
            Some(Value::Bool(false)) => None,
            other => Some(self.element("item", other.unwrap_or(&any))?),
        };
        items_between(self.rules, plain, &[], items.as_deref(), "")
    }

    /// The fields of an object, one element each.
    pub(super) fn elements(
        &mut self,
        plain: &Map<String, Value>,
    ) -> Result<String, ConstraintError> {
        for keyword in ["minProperties", "maxProperties"] {
            if plain.contains_key(keyword) {
                return Err(unsupported(keyword));
            }
        }
        let mut items = Vec::new();
        for (key, schema, required) in properties(plain) {
            if schema == Value::Bool(false) && !required {
                continue;
            }
            let element = self
                .element(&key, &schema)
                .map_err(|error| error.within(&key).within("properties"))?;
            items.push((element, required));
        }
        Ok(self.rules.sequence(&items, "", None))
    }

    /// One element with its tags.
    pub(super) fn element(&mut self, key: &str, schema: &Value) -> Result<String, ConstraintError> {
        if !writable(key) {
            return Err(unsupported("properties"));
        }
        let token = self.token.unwrap_or_default();
        let end = End {
            marker: token.to_owned(),
            tail: format!("</{key}>"),
            ..End::default()
        };
        let options: Vec<String> = self
            .value(schema, &end)?
            .into_iter()
            .map(|written| written.rule)
            .collect();
        let value = self.rules.rule(&options.join(" | "));
        let open = self.rules.specials.expression(&format!("{token}<{key}>"));
        Ok(self.rules.rule(&format!("{open} {value}")))
    }
}

/// Whether a name can stand in a tag.
pub(super) fn writable(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || "<>\"'&=/".contains(c))
}

fn types(root: &Value, plain: &Map<String, Value>) -> Result<Vec<&'static str>, ConstraintError> {
    Ok(match constants(root, plain)? {
        Some(values) => values.iter().map(kind_of).collect(),
        None => kinds(plain),
    })
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A condition on terminals: a text that no type but text reads.
fn no_value() -> String {
    format!(
        "~(/[ \\t\\r\\n]*[-+.0-9\\[{{(\"']/ {ANY_TEXT}) & ~/(?i)[ \\t\\r\\n]*(true|false|null|none)[ \\t\\r\\n]*/"
    )
}

/// Whether a text may be read as a value of another type.
fn reads_as_value(text: &str) -> bool {
    let text = text.trim();
    text.starts_with(|c: char| "-+.0123456789[{(\"'".contains(c))
        || ["true", "false", "null", "none"]
            .iter()
            .any(|word| text.eq_ignore_ascii_case(word))
}
