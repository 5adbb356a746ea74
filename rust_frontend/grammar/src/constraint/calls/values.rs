//! Values in the forms of `pythonic` and `typed_kv`, JSON but for the words, the quotes and the keys; and JSON between
//! markers, which no string in it may hold.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::constraint::error::ConstraintError;
use crate::constraint::lark::literal;
use crate::constraint::parts::{Part, constants, kinds, leaf, parts, unsupported};
use crate::constraint::rules::Rules;
use crate::constraint::texts::bounds;
use crate::render::{python, typed, typed_key};

/// Items and properties of one value that are counted.
const MAX_COUNT: u64 = 10_000;
/// A string of Python: two kinds of quotes, and the escapes that all languages share.
const PYTHON_STRING: &str =
    r#"/"([^"\\\x00-\x1f]|\\["'\\nrt])*"/ | /'([^'\\\x00-\x1f]|\\["'\\nrt])*'/"#;
const JSON_STRING: &str = r#"/"([^"\\\x00-\x1f]|\\(["\\\/bfnrt]|u[0-9a-fA-F]{4}))*"/"#;
/// White space between the parts of JSON.
const SPACE: &str = r"[ \t\r\n]{1,16}";
const NAME: &str = "/[A-Za-z_][A-Za-z0-9_]*/";

/// How values are written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Style<'a> {
    /// As literals of Python.
    Python,
    /// With this token in place of quotes.
    Typed(&'a str),
    /// As JSON in which none of these texts stands.
    Json(&'a [String]),
}

/// Writes the values of one lowered document.
pub(super) struct Values<'r, 'a> {
    rules: &'r mut Rules<'a>,
    style: Style<'r>,
    root: &'r Value,
    /// Rules of definitions by the reference that names them.
    names: BTreeMap<String, String>,
    any: Option<String>,
}

type Written = Result<String, ConstraintError>;

impl<'r, 'a> Values<'r, 'a> {
    pub(super) fn new(rules: &'r mut Rules<'a>, style: Style<'r>, root: &'r Value) -> Self {
        Self {
            rules,
            style,
            root,
            names: BTreeMap::new(),
            any: None,
        }
    }

    /// The rule of a value.
    ///
    /// # Errors
    /// The keyword that cannot be enforced.
    pub(super) fn value(&mut self, schema: &Value) -> Written {
        let found = parts(self.root, schema, false)?;
        if found.is_empty() {
            return Err(ConstraintError::whole("no value satisfies it"));
        }
        let mut options = Vec::new();
        for part in found {
            match part {
                Part::Any => options.push(self.any()?),
                Part::Reference(pointer) => options.push(self.reference(&pointer)?),
                Part::Plain(plain) => self.plain(&plain, &mut options)?,
            }
        }
        if options.is_empty() {
            return Err(ConstraintError::whole("no value satisfies it"));
        }
        Ok(self.rules.rule(&options.join(" | ")))
    }

    fn reference(&mut self, pointer: &str) -> Written {
        if let Some(name) = self.names.get(pointer) {
            return Ok(name.clone());
        }
        let target = pointer
            .strip_prefix('#')
            .and_then(|pointer| self.root.pointer(pointer))
            .ok_or_else(|| unsupported("$ref"))?;
        let name = self.rules.reserve();
        self.names.insert(pointer.to_owned(), name.clone());
        let body = self.value(target)?;
        self.rules.define(&name, &body);
        Ok(name)
    }

    fn plain(
        &mut self,
        plain: &Map<String, Value>,
        options: &mut Vec<String>,
    ) -> Result<(), ConstraintError> {
        if let Some(values) = constants(self.root, plain)? {
            for value in &values {
                let text = match self.style {
                    Style::Python => python(value),
                    Style::Typed(quote) => typed(value, quote),
                    Style::Json(_) => value.to_string(),
                };
                self.clear_of_markers(&text, "enum")?;
                options.push(self.rules.specials.expression(&text));
            }
            return Ok(());
        }
        for kind in kinds(plain) {
            let written = match kind {
                "string" => self.string(plain)?,
                "integer" | "number" => self.leaf(plain, kind),
                "boolean" => match self.style {
                    Style::Python => r#"("True" | "False")"#.to_owned(),
                    Style::Typed(_) | Style::Json(_) => r#"("true" | "false")"#.to_owned(),
                },
                "null" => literal(match self.style {
                    Style::Python => "None",
                    Style::Typed(_) | Style::Json(_) => "null",
                }),
                "array" => self.array(plain)?,
                _ => self.object(plain)?,
            };
            options.push(written);
        }
        Ok(())
    }

    /// A list or an object.
    ///
    /// # Errors
    /// The keyword that cannot be enforced.
    pub(super) fn composite(&mut self, plain: &Map<String, Value>, kind: &str) -> Written {
        if kind == "array" {
            self.array(plain)
        } else {
            self.object(plain)
        }
    }

    fn clear_of_markers(&self, text: &str, keyword: &str) -> Result<(), ConstraintError> {
        match self.style {
            Style::Json(without) if without.iter().any(|marker| text.contains(marker.as_str())) => {
                Err(unsupported(keyword))
            }
            _ => Ok(()),
        }
    }

    fn leaf(&mut self, plain: &Map<String, Value>, kind: &str) -> String {
        let mut map = plain.clone();
        map.insert("type".to_owned(), json!(kind));
        let body = leaf(self.root, &map).as_rule();
        self.rules.rule(&body)
    }

    fn string(&mut self, plain: &Map<String, Value>) -> Written {
        match self.style {
            Style::Python => {
                let free = !["pattern", "minLength", "maxLength"]
                    .iter()
                    .any(|key| plain.contains_key(*key));
                // A string of JSON is one of Python.
                Ok(if free {
                    self.rules.terminal(PYTHON_STRING)
                } else {
                    self.leaf(plain, "string")
                })
            }
            Style::Typed(quote) => {
                let body = bounds(self.rules, plain)?;
                let text = self.rules.until(quote, &[], body.as_deref());
                Ok(format!("{} {text}", self.rules.specials.expression(quote)))
            }
            Style::Json(without) => Ok(match bounds(self.rules, plain)? {
                None => self.rules.apart(JSON_STRING, without),
                Some(body) => {
                    let text = format!(r#"{body} & /[^"\\\x00-\x1f]*/"#);
                    let text = self.rules.apart(&text, without);
                    self.rules.terminal(&format!(r#""\"" {text} "\"""#))
                }
            }),
        }
    }

    /// A sign between values, with the white space that models write behind it.
    fn sign(&self, sign: char) -> String {
        match self.style {
            Style::Python => format!("/{sign} ?/"),
            Style::Json(_) => format!("/{sign}({SPACE})?/"),
            Style::Typed(_) => format!("/{sign}/"),
        }
    }

    /// What stands between brackets.
    fn between(&self, open: char, inside: &str, close: char) -> String {
        match self.style {
            Style::Json(_) => {
                format!(r#""{open}" (/{SPACE}/)? {inside} (/{SPACE}/)? "{close}""#)
            }
            Style::Python | Style::Typed(_) => format!(r#""{open}" {inside} "{close}""#),
        }
    }

    fn array(&mut self, plain: &Map<String, Value>) -> Written {
        let prefix = plain.get("prefixItems").and_then(Value::as_array);
        let mut written = Vec::new();
        for schema in prefix.into_iter().flatten() {
            written.push(self.value(schema)?);
        }
        let items = match plain.get("items") {
            Some(Value::Bool(false)) => None,
            Some(schema) => Some(self.value(schema)?),
            None => Some(self.any()?),
        };
        let comma = self.sign(',');
        let inside = items_between(self.rules, plain, &written, items.as_deref(), &comma)?;
        Ok(self.between('[', &inside, ']'))
    }

    fn object(&mut self, plain: &Map<String, Value>) -> Written {
        for keyword in ["minProperties", "maxProperties"] {
            if plain.contains_key(keyword) {
                return Err(unsupported(keyword));
            }
        }
        if plain
            .get("patternProperties")
            .and_then(Value::as_object)
            .is_some_and(|map| !map.is_empty())
        {
            return Err(unsupported("patternProperties"));
        }
        let (mut items, mut names) = (Vec::new(), Vec::new());
        for (key, schema, required) in properties(plain) {
            self.clear_of_markers(&key, "properties")?;
            names.push(key.clone());
            if schema == Value::Bool(false) && !required {
                continue;
            }
            let value = self
                .value(&schema)
                .map_err(|error| error.within(&key).within("properties"))?;
            let key = self.rules.specials.expression(&self.key(&key));
            items.push((format!("{key} {} {value}", self.sign(':')), required));
        }
        let more = match plain.get("additionalProperties") {
            Some(Value::Bool(false)) => None,
            Some(schema) => {
                let value = self.value(schema)?;
                Some(self.other_key(&names, &value))
            }
            None => {
                let value = self.any()?;
                Some(self.other_key(&names, &value))
            }
        };
        let comma = self.sign(',');
        let inside = self.rules.sequence(&items, &comma, more.as_deref());
        Ok(self.between('{', &inside, '}'))
    }

    fn key(&self, key: &str) -> String {
        match self.style {
            Style::Python | Style::Json(_) => literal(key),
            Style::Typed(quote) => typed_key(key, quote),
        }
    }

    /// A pair whose key is none of these.
    fn other_key(&mut self, names: &[String], value: &str) -> String {
        let any = match self.style {
            Style::Python | Style::Json(_) => r#"/"[^"\\\x00-\x1f]*"/"#,
            Style::Typed(_) => NAME,
        };
        let known: Vec<String> = names
            .iter()
            .map(|name| match self.style {
                Style::Python | Style::Json(_) => literal(&literal(name)),
                Style::Typed(_) => literal(name),
            })
            .collect();
        let mut key = any.to_owned();
        if !known.is_empty() {
            key = format!("{key} & ~({})", known.join(" | "));
        }
        let without = match self.style {
            Style::Json(without) => without,
            _ => &[],
        };
        let key = self.rules.apart(&key, without);
        let colon = self.sign(':');
        self.rules.rule(&format!("{key} {colon} {value}"))
    }

    /// The rule of any value.
    pub(super) fn any(&mut self) -> Written {
        if let Some(name) = &self.any {
            return Ok(name.clone());
        }
        let name = self.rules.reserve();
        self.any = Some(name.clone());
        let every = json!({ "type": ["string", "number", "boolean", "null", "array", "object"] });
        let mut options = Vec::new();
        if let Value::Object(plain) = &every {
            self.plain(plain, &mut options)?;
        }
        self.rules.define(&name, &options.join(" | "));
        Ok(name)
    }
}

/// The properties of an object in their order, those that are only required last: name, schema, whether it must be.
pub(super) fn properties(plain: &Map<String, Value>) -> Vec<(String, Value, bool)> {
    let required: Vec<&str> = plain
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let named = plain.get("properties").and_then(Value::as_object);
    let mut out: Vec<(String, Value, bool)> = named
        .into_iter()
        .flatten()
        .map(|(key, schema)| {
            (
                key.clone(),
                schema.clone(),
                required.contains(&key.as_str()),
            )
        })
        .collect();
    for key in required {
        if out.iter().all(|(known, _, _)| known != key) {
            let schema = plain.get("additionalProperties").cloned();
            out.push((key.to_owned(), schema.unwrap_or(Value::Bool(true)), true));
        }
    }
    out
}

/// The items of a list with the expression `join` between them: the first ones by themselves, then others, as many as the
/// schema allows.
pub(super) fn items_between(
    rules: &mut Rules<'_>,
    plain: &Map<String, Value>,
    first: &[String],
    others: Option<&str>,
    join: &str,
) -> Written {
    let count = |key: &str| plain.get(key).and_then(Value::as_u64);
    let least = count("minItems").unwrap_or(0);
    let most = count("maxItems");
    let before = first.len() as u64;
    if least > MAX_COUNT || (least > before && others.is_none()) {
        return Err(unsupported("minItems"));
    }
    let spaced = |index: u64, item: &str| {
        if index == 0 {
            item.to_owned()
        } else {
            format!("{join} {item}")
        }
    };
    let mut rest = match others.filter(|_| most.is_none_or(|most| most > before)) {
        None => literal(""),
        Some(item) => {
            let item = rules.rule(item);
            let head = before.max(1);
            let low = least.saturating_sub(head);
            let high = match most.map(|most| (most - head).min(MAX_COUNT)) {
                Some(high) => high.to_string(),
                None => String::new(),
            };
            let again = format!("({}){{{low},{high}}}", spaced(1, &item));
            match (before, least) {
                (0, 0) => rules.rule(&format!("({item} {again})?")),
                (0, _) => rules.rule(&format!("{item} {again}")),
                _ => rules.rule(&again),
            }
        }
    };
    for (index, item) in first.iter().enumerate().rev() {
        let index = index as u64;
        if most.is_some_and(|most| most <= index) {
            rest = literal("");
            continue;
        }
        let one = format!("{} {rest}", spaced(index, item));
        rest = rules.rule(&if least <= index {
            format!("({one})?")
        } else {
            one
        });
    }
    Ok(rest)
}
