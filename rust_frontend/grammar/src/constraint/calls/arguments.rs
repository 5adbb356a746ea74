//! The arguments of a call, as its format writes them.

use serde_json::{Map, Value, json};

use super::raw::{End, Raw, writable};
use super::values::{Style, Values};
use super::{GuidedTool, enforced};
use crate::constraint::error::ConstraintError;
use crate::constraint::lark::{ANY_TEXT, literal};
use crate::constraint::rules::Rules;
use crate::constraint::schema::{self, SchemaOptions};
use crate::render::{ArgumentStyle, Render, typed_key};

/// Keywords of a tool's schema, beside those that name its arguments, that would have to be enforced.
const OTHERS: [&str; 16] = [
    "$ref",
    "$dynamicRef",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "enum",
    "const",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
];
/// A name that a schema leaves open.
const NAME: &str = "/[A-Za-z_][A-Za-z0-9_]*/";

type Rule = Result<String, ConstraintError>;

/// One argument, with a schema that stands by itself.
struct Argument {
    key: String,
    schema: Value,
    required: bool,
}

/// Writes the arguments of one tool.
pub(super) struct Writer<'r, 'a> {
    pub(super) rules: &'r mut Rules<'a>,
    pub(super) render: &'r Render,
    /// Markers that would end a value that stands between markers.
    pub(super) markers: &'r [String],
}

impl Writer<'_, '_> {
    /// The rule of the arguments.
    ///
    /// # Errors
    /// What of a strict tool's schema cannot be enforced; a name that cannot be written.
    pub(super) fn write(&mut self, tool: &GuidedTool<'_>) -> Rule {
        if self.render.arguments == ArgumentStyle::Json {
            let schema = whole(tool)?;
            return Ok(self.rules.rule(&format!("%json {schema}")));
        }
        let schema = top(tool);
        if tool.strict {
            refuse_others(&schema)?;
        }
        let arguments = listed(&schema);
        let open = !tool.strict
            && tool.parameters.is_some()
            && arguments.is_empty()
            && schema.get("additionalProperties") != Some(&Value::Bool(false));
        let mut items = Vec::new();
        for argument in &arguments {
            if let Some(rule) = self.argument(tool, argument)? {
                items.push((rule, argument.required));
            }
        }
        let more = if open { self.any_argument()? } else { None };
        let render = self.render;
        let join = join(render, self.rules);
        let inside = self.rules.sequence(&items, &join, more.as_deref());
        Ok(match self.render.arguments {
            ArgumentStyle::TypedKv => format!(r#""{{" {inside} "}}""#),
            _ => inside,
        })
    }

    /// The rule of one argument with its name; none where it can be left out and cannot be written.
    fn argument(
        &mut self,
        tool: &GuidedTool<'_>,
        argument: &Argument,
    ) -> Result<Option<String>, ConstraintError> {
        let within = |error: ConstraintError| error.within(&argument.key).within("parameters");
        if !self.can_name(&argument.key) {
            if !tool.strict && !argument.required {
                return Ok(None);
            }
            let message = "this name cannot be written in this model's output format";
            return Err(within(ConstraintError::whole(message)));
        }
        let options = SchemaOptions {
            closed: tool.strict,
            ..SchemaOptions::default()
        };
        let mark = self.rules.mark();
        let lowered =
            apart(&argument.schema).and_then(|()| schema::lower(&argument.schema, &options));
        let lowered = lowered.and_then(|lowered| {
            schema::compiles(&lowered)?;
            Ok(lowered)
        });
        let written = lowered.and_then(|lowered| self.pair(&argument.key, &lowered));
        match written {
            Ok(rule) => Ok(Some(rule)),
            Err(error) if tool.strict => Err(within(error)),
            Err(_) => {
                self.rules.reset(mark);
                let any = schema::lower(&json!({}), &SchemaOptions::default())?;
                self.pair(&argument.key, &any).map(Some).map_err(within)
            }
        }
    }

    fn can_name(&self, key: &str) -> bool {
        match self.render.arguments {
            ArgumentStyle::Python => {
                key.starts_with(|c: char| c.is_alphabetic() || c == '_')
                    && key.chars().all(|c| c.is_alphanumeric() || c == '_')
            }
            ArgumentStyle::Params | ArgumentStyle::Tree => writable(key),
            ArgumentStyle::Json | ArgumentStyle::TypedKv => true,
        }
    }

    /// A name and a value of a lowered schema.
    fn pair(&mut self, key: &str, root: &Value) -> Rule {
        match self.render.arguments {
            ArgumentStyle::Python => {
                let value = Values::new(self.rules, Style::Python, root).value(root)?;
                Ok(self
                    .rules
                    .rule(&format!("{} {value}", literal(&format!("{key}=")))))
            }
            ArgumentStyle::TypedKv => {
                let quote = &self.render.quote;
                let value = Values::new(self.rules, Style::Typed(quote), root).value(root)?;
                let key = format!("{}:", typed_key(key, quote));
                let key = self.rules.specials.expression(&key);
                Ok(self.rules.rule(&format!("{key} {value}")))
            }
            ArgumentStyle::Tree => Raw {
                rules: self.rules,
                root,
                token: Some(&self.render.quote),
                depth: 0,
            }
            .element(key, root),
            ArgumentStyle::Params | ArgumentStyle::Json => self.param(key, root),
        }
    }

    /// One parameter between its markers, for each type of value that it may have.
    fn param(&mut self, key: &str, root: &Value) -> Rule {
        let (before, after) = split(self.render)?;
        let end = End::find(after, self.markers)?;
        let written = Raw {
            rules: self.rules,
            root,
            token: None,
            depth: 0,
        }
        .value(root, &end)?;
        let options: Vec<String> = written
            .into_iter()
            .map(|one| {
                let is_text = if one.kind == "string" {
                    "true"
                } else {
                    "false"
                };
                let kind = if one.kind == "integer" {
                    "number"
                } else {
                    one.kind
                };
                let head = before
                    .replace("{key}", key)
                    .replace("{string}", is_text)
                    .replace("{type}", kind);
                format!("{} {}", self.rules.specials.expression(&head), one.rule)
            })
            .collect();
        Ok(self.rules.rule(&options.join(" | ")))
    }

    /// An argument of any name; none where the format cannot leave the name open.
    fn any_argument(&mut self) -> Result<Option<String>, ConstraintError> {
        let any = json!({});
        Ok(match self.render.arguments {
            ArgumentStyle::Python | ArgumentStyle::TypedKv => {
                let (style, sign) = match self.render.arguments {
                    ArgumentStyle::Python => (Style::Python, "="),
                    _ => (Style::Typed(&self.render.quote), ":"),
                };
                let value = Values::new(self.rules, style, &any).any()?;
                let name = self.rules.terminal(NAME);
                Some(
                    self.rules
                        .rule(&format!("{name} {} {value}", literal(sign))),
                )
            }
            ArgumentStyle::Params => {
                let (before, after) = split(self.render)?;
                let end = End::find(after, self.markers)?;
                let Some((head, rest)) = before.split_once("{key}") else {
                    return Ok(None);
                };
                let rest = rest.replace("{string}", "true").replace("{type}", "string");
                let text = self.rules.until(&end.marker, &end.without, Some(ANY_TEXT));
                let name = self.rules.terminal(NAME);
                let expression = |text: &str| self.rules.specials.expression(text);
                let body = format!(
                    "{} {name} {} {text} {}",
                    expression(head),
                    expression(&rest),
                    expression(&end.tail)
                );
                Some(self.rules.rule(&body))
            }
            // The name of an element stands at both of its ends.
            ArgumentStyle::Tree | ArgumentStyle::Json => None,
        })
    }
}

/// Check that a schema refers to definitions only: what it refers to else stands in the schema of all arguments.
fn apart(schema: &Value) -> Result<(), ConstraintError> {
    match schema {
        Value::Object(map) => {
            let reference = map.get("$ref").and_then(Value::as_str);
            let definition = |text: &str| {
                ["#/$defs/", "#/definitions/"]
                    .iter()
                    .any(|start| text.starts_with(start))
                    || !(text == "#" || text.starts_with("#/"))
            };
            if reference.is_some_and(|text| !definition(text)) {
                return Err(ConstraintError::new(
                    "$ref",
                    "may name definitions only in this model's output format",
                ));
            }
            map.values().try_for_each(apart)
        }
        Value::Array(items) => items.iter().try_for_each(apart),
        _ => Ok(()),
    }
}

/// What stands between two arguments.
fn join(render: &Render, rules: &Rules<'_>) -> String {
    match render.arguments {
        ArgumentStyle::Python => "/, ?/".to_owned(),
        ArgumentStyle::TypedKv => "/,/".to_owned(),
        _ if render.param_join.is_empty() => String::new(),
        _ => rules.specials.expression(&render.param_join),
    }
}

fn split(render: &Render) -> Result<(&str, &str), ConstraintError> {
    render
        .param
        .split_once("{value}")
        .ok_or_else(|| ConstraintError::whole("this output format has no place for values"))
}

/// The schema of a tool's arguments; a reference to a definition is followed.
fn top(tool: &GuidedTool<'_>) -> Map<String, Value> {
    let Some(Value::Object(map)) = tool.parameters else {
        return Map::new();
    };
    let target = map
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|reference| {
            tool.parameters?
                .pointer(reference.strip_prefix('#')?)?
                .as_object()
        })
        .filter(|target| !target.contains_key("$ref"));
    let Some(target) = target else {
        return map.clone();
    };
    let mut out = target.clone();
    for key in ["$defs", "definitions", "$schema"] {
        if let Some(shared) = map.get(key) {
            out.insert(key.to_owned(), shared.clone());
        }
    }
    out
}

fn refuse_others(schema: &Map<String, Value>) -> Result<(), ConstraintError> {
    let other = OTHERS
        .into_iter()
        .find(|keyword| schema.contains_key(*keyword));
    let open = schema
        .get("additionalProperties")
        .is_some_and(|value| *value != Value::Bool(false));
    if let Some(keyword) = other.or(open.then_some("additionalProperties")) {
        let message = "cannot be enforced for all arguments together in this model's output format";
        return Err(ConstraintError::new(keyword, message).within("parameters"));
    }
    Ok(())
}

/// The arguments that a schema names, each with the definitions that it may refer to.
fn listed(schema: &Map<String, Value>) -> Vec<Argument> {
    super::values::properties(schema)
        .into_iter()
        .filter(|(_, schema, required)| *required || *schema != Value::Bool(false))
        .map(|(key, mut value, required)| {
            if let Value::Object(map) = &mut value {
                for name in ["$defs", "definitions", "$schema"] {
                    if let Some(shared) = schema.get(name) {
                        map.entry(name).or_insert_with(|| shared.clone());
                    }
                }
            }
            Argument {
                key,
                schema: value,
                required,
            }
        })
        .collect()
}

/// The schema of arguments that are one JSON object.
fn whole(tool: &GuidedTool<'_>) -> Result<Value, ConstraintError> {
    let mut schema = tool.parameters.cloned().unwrap_or_else(|| json!({}));
    if let Some(map) = schema.as_object_mut()
        && !map.contains_key("$ref")
    {
        map.insert("type".to_owned(), json!("object"));
        if tool.parameters.is_none() {
            map.insert("additionalProperties".to_owned(), Value::Bool(false));
        }
    }
    enforced(&schema, tool.strict, &json!({ "type": "object" }))
}
