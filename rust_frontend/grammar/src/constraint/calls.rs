//! Tool calls that a grammar forces, from the texts of their format.

use serde_json::{Map, Value, json};

use super::error::ConstraintError;
use super::lark::{ANY_TEXT, Specials, literal, until};
use super::schema::{self, SchemaOptions};
use super::sources::{Constraint, Kind};
use crate::render::{ArgumentStyle, CallShape, Render};

/// Most calls of one answer where each call is written with its number.
const MAX_NUMBERED: usize = 4;

/// One tool that may be called.
#[derive(Debug, Clone, Copy)]
pub struct GuidedTool<'a> {
    /// Its name.
    pub name: &'a str,
    /// The schema of its arguments.
    pub parameters: Option<&'a Value>,
    /// Whether the schema must be enforced; else a schema that cannot be is read as any object.
    pub strict: bool,
}

impl<'a> GuidedTool<'a> {
    /// Reads a function as clients send it.
    pub fn read(function: &'a Value) -> Option<Self> {
        Some(Self {
            name: function.get("name")?.as_str()?,
            parameters: function
                .get("parameters")
                .filter(|schema| !schema.is_null()),
            strict: function.get("strict") == Some(&Value::Bool(true)),
        })
    }
}

/// Which calls an answer may hold.
#[derive(Debug, Clone, Copy)]
pub struct Guided {
    /// Nothing but calls, at least one; else text, and calls where the format's trigger stands in it.
    pub required: bool,
    /// More than one.
    pub parallel: bool,
}

/// Makes the constraint of an answer with calls of these tools.
///
/// # Errors
/// The tool whose schema cannot be enforced; a format that no grammar is made for.
pub fn calls(
    render: &Render,
    tools: &[GuidedTool<'_>],
    wanted: Guided,
    specials: &Specials,
) -> Result<Constraint, ConstraintError> {
    let mut writer = Writer {
        render,
        specials,
        rules: Vec::new(),
    };
    let start = writer.answer(tools, wanted)?;
    let text = format!("start: {start}\n{}\n", writer.rules.join("\n"));
    Ok(Constraint::raw(Kind::Lark, text))
}

struct Writer<'a> {
    render: &'a Render,
    specials: &'a Specials,
    rules: Vec<String>,
}

impl Writer<'_> {
    fn rule(&mut self, body: &str) -> String {
        let name = format!("r{}", self.rules.len());
        self.rules.push(format!("{name}: {body}"));
        name
    }

    fn answer(
        &mut self,
        tools: &[GuidedTool<'_>],
        wanted: Guided,
    ) -> Result<String, ConstraintError> {
        let trigger = if wanted.required {
            String::new()
        } else {
            self.render.trigger()
        };
        if !wanted.required && trigger.trim().is_empty() {
            let message = "strict tools are not supported with this format, whose calls have no mark before the name; \
                           leave strict out, or choose a tool";
            return Err(ConstraintError::whole(message));
        }
        let numbered = tools
            .iter()
            .any(|tool| self.render.shape(tool.name, 0) != self.render.shape(tool.name, 1));
        let first = self.one_of(tools, 0, &trigger)?;
        let more = if !wanted.parallel {
            String::new()
        } else if numbered {
            let mut tail = String::new();
            for index in (1..MAX_NUMBERED).rev() {
                let call = self.one_of(tools, index, "")?;
                tail = format!("({call} {tail})?");
            }
            tail
        } else {
            let again = self.one_of(tools, 1, "")?;
            format!("{again}*")
        };
        let close = self.specials.expression(&self.render.close);
        if wanted.required {
            return Ok(format!("{first} {more} {close}"));
        }
        let name = format!("r{}", self.rules.len());
        self.rules.push(until(&trigger, self.specials, &name));
        let text = self.rule(ANY_TEXT);
        let repeat = if wanted.parallel { "*" } else { "?" };
        Ok(format!("({name} {first} {more} {close}){repeat} {text}"))
    }

    /// One call of any tool: the first with the opening before it, less what `said` has written, others behind the join.
    fn one_of(
        &mut self,
        tools: &[GuidedTool<'_>],
        index: usize,
        said: &str,
    ) -> Result<String, ConstraintError> {
        let mut options = Vec::new();
        for tool in tools {
            let shape = self
                .render
                .shape(tool.name, index)
                .ok_or_else(|| ConstraintError::whole("this output format has no calls"))?;
            let before = if index == 0 { &shape.open } else { &shape.join };
            let begin = format!("{before}{}", shape.begin);
            let begin = begin.strip_prefix(said).unwrap_or(&begin);
            let arguments = self
                .arguments(tool, &shape)
                .map_err(|error| error.within(tool.name))?;
            options.push(format!(
                "{} {arguments} {}",
                self.specials.expression(begin),
                self.specials.expression(&shape.end)
            ));
        }
        Ok(self.rule(&options.join(" | ")))
    }

    fn arguments(
        &mut self,
        tool: &GuidedTool<'_>,
        shape: &CallShape,
    ) -> Result<String, ConstraintError> {
        match shape.arguments {
            ArgumentStyle::Json => {
                let schema = lowered(tool)?;
                Ok(self.rule(&format!("%json {schema}")))
            }
            ArgumentStyle::Params => self.params(tool),
            ArgumentStyle::Python | ArgumentStyle::TypedKv | ArgumentStyle::Tree => {
                let message = "calls cannot be forced in this model's output format; use tool_choice \"auto\", without \
                               strict";
                Err(ConstraintError::whole(message))
            }
        }
    }

    /// Arguments one by one, in the schema's order.
    fn params(&mut self, tool: &GuidedTool<'_>) -> Result<String, ConstraintError> {
        let empty = Map::new();
        let parameters = tool.parameters.and_then(Value::as_object);
        let properties = parameters
            .and_then(|schema| schema.get("properties")?.as_object())
            .unwrap_or(&empty);
        let required: Vec<&str> = parameters
            .and_then(|schema| schema.get("required")?.as_array())
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        if !self.render.param_join.is_empty() && required.len() < properties.len() {
            let message = "optional arguments cannot be forced in this model's output format";
            return Err(ConstraintError::whole(message));
        }
        let mut written = Vec::new();
        for (key, schema) in properties {
            let one = self
                .param(tool, key, schema)
                .map_err(|error| error.within(key))?;
            let optional = if required.contains(&key.as_str()) {
                ""
            } else {
                "?"
            };
            written.push(format!("{one}{optional}"));
        }
        let join = if self.render.param_join.is_empty() {
            " ".to_owned()
        } else {
            format!(" {} ", self.specials.expression(&self.render.param_join))
        };
        Ok(if written.is_empty() {
            literal("")
        } else {
            self.rule(&written.join(&join))
        })
    }

    /// One argument as a rule.
    fn param(
        &mut self,
        tool: &GuidedTool<'_>,
        key: &str,
        schema: &Value,
    ) -> Result<String, ConstraintError> {
        let text = is_text(schema);
        let filled = self
            .render
            .param
            .replace("{key}", key)
            .replace("{string}", if text { "true" } else { "false" })
            .replace("{type}", kind(schema));
        let (before, after) = filled
            .split_once("{value}")
            .ok_or_else(|| ConstraintError::whole("this output format has no place for values"))?;
        let before = self.specials.expression(before);
        if text && schema.get("enum").is_none() && schema.get("const").is_none() {
            let name = format!("r{}", self.rules.len());
            self.rules.push(until(after, self.specials, &name));
            return Ok(self.rule(&format!("{before} {name}")));
        }
        let value = if text {
            let values = schema.get("enum").and_then(Value::as_array);
            let values = values.into_iter().flatten().chain(schema.get("const"));
            let literals: Vec<String> = values.filter_map(Value::as_str).map(literal).collect();
            format!("({})", literals.join(" | "))
        } else {
            // References of the value are those of the whole schema.
            let mut alone = schema.as_object().cloned().unwrap_or_default();
            for name in ["$defs", "definitions", "$schema"] {
                if let Some(shared) = tool.parameters.and_then(|whole| whole.get(name)) {
                    alone.entry(name).or_insert_with(|| shared.clone());
                }
            }
            let one = GuidedTool {
                parameters: Some(&Value::Object(alone)),
                ..*tool
            };
            format!("%json {}", lowered_value(&one)?)
        };
        let value = self.rule(&value);
        Ok(self.rule(&format!(
            "{before} {value} {}",
            self.specials.expression(after)
        )))
    }
}

/// The word that formats have for a parameter's type.
fn kind(schema: &Value) -> &str {
    match schema.get("type").and_then(Value::as_str) {
        Some("integer") => "number",
        Some(other) => other,
        None => "string",
    }
}

/// Whether all values of a parameter are text, which stands there without quotes.
fn is_text(schema: &Value) -> bool {
    match schema.get("type") {
        Some(kind) => kind == "string",
        None => schema
            .get("enum")
            .and_then(Value::as_array)
            .is_some_and(|values| values.iter().all(Value::is_string)),
    }
}

/// The schema of a tool's arguments, which are an object.
fn lowered(tool: &GuidedTool<'_>) -> Result<Value, ConstraintError> {
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

fn lowered_value(tool: &GuidedTool<'_>) -> Result<Value, ConstraintError> {
    let any = json!({});
    enforced(tool.parameters.unwrap_or(&any), tool.strict, &any)
}

/// A schema as it is enforced; where it cannot be and need not, `loose` in its place.
fn enforced(schema: &Value, strict: bool, loose: &Value) -> Result<Value, ConstraintError> {
    let options = SchemaOptions {
        closed: strict,
        ..SchemaOptions::default()
    };
    match schema::lower(schema, &options).and_then(|lowered| {
        schema::compiles(&lowered)?;
        Ok(lowered)
    }) {
        Err(error) if strict => Err(error.within("parameters")),
        Err(_) => schema::lower(loose, &SchemaOptions::default()),
        Ok(lowered) => Ok(lowered),
    }
}
