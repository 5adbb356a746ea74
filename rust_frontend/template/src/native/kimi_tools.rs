//! Tools as TypeScript declarations, as Kimi K2.5 was trained on them.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::dumps::spaced;
use super::turn::functions;
use crate::error::RenderError;
use crate::{repr, value};

/// How deep schemas may nest.
const DEPTH: usize = 64;

type Schema = Map<String, Value>;

/// Declares tools; those that are no functions are passed over. `{}`-like schemas are kept as they are.
///
/// # Errors
/// A schema that the format has no form for.
pub(super) fn declare(tools: &[Value]) -> Result<String, RenderError> {
    let functions = functions(Some(tools));
    if functions.is_empty() {
        return Ok(String::new());
    }
    let declared: Vec<String> = functions
        .into_iter()
        .map(function)
        .collect::<Result<_, _>>()?;
    Ok(format!(
        "# Tools\n\n## functions\nnamespace functions {{\n{}\n}}\n",
        declared.join("\n")
    ))
}

/// Definitions that a function's schema names, and whether it names itself.
#[derive(Default)]
struct Names {
    definitions: Vec<(String, Value)>,
    itself: bool,
}

fn function(function: &Schema) -> Result<String, RenderError> {
    let name = function
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or("function");
    let fail = |reason: String| {
        RenderError::Refused(format!("The tool {name} cannot be declared: {reason}."))
    };
    let empty = Schema::new();
    let parameters = function
        .get("parameters")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    let mut names = Names::default();
    collect(parameters, &mut names, 0).map_err(fail)?;
    let writer = Writer {
        known: names
            .definitions
            .iter()
            .map(|(name, schema)| (name.as_str(), schema))
            .collect(),
    };
    let mut lines: Vec<String> = Vec::new();
    if names.itself {
        let fields = writer
            .fields(parameters, "  ", false, 0)
            .map_err(fail)?
            .join(",\n");
        let fields = if fields.is_empty() {
            fields
        } else {
            format!("\n{fields}\n")
        };
        lines.push(format!("interface parameters {{{fields}}}"));
    }
    for (name, schema) in &names.definitions {
        let described = text(schema, "description")
            .map(|text| comment(text, "") + "\n")
            .unwrap_or_default();
        let shape = writer.shape(schema, "", 0).map_err(fail)?;
        lines.push(format!("{described}interface {name} {shape}"));
    }
    let described = function
        .get("description")
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty());
    lines.extend(described.map(|text| comment(text, "")));
    let shape = match names.itself {
        true => "parameters".to_owned(),
        false => writer.object(parameters, "", 0).map_err(fail)?,
    };
    lines.push(format!("type {name} = (_: {shape}) => any;"));
    Ok(lines.join("\n"))
}

/// Finds `$defs`, and references to the whole.
fn collect(schema: &Schema, names: &mut Names, depth: usize) -> Result<(), String> {
    if depth > DEPTH {
        return Err(format!("its schema nests deeper than {DEPTH}"));
    }
    names.itself |= schema.get("$ref").is_some_and(|target| target == "#");
    if let Some(Value::Object(definitions)) = schema.get("$defs") {
        for (name, definition) in definitions {
            names.definitions.retain(|(known, _)| known != name);
            names.definitions.push((name.clone(), definition.clone()));
        }
    }
    let below = ["properties", "$defs"]
        .iter()
        .filter_map(|key| schema.get(*key)?.as_object())
        .flat_map(Map::values);
    let alone = ["items", "additionalProperties"]
        .iter()
        .filter_map(|key| schema.get(*key));
    let any = schema
        .get("anyOf")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    for inner in below.chain(alone).chain(any).filter_map(Value::as_object) {
        collect(inner, names, depth + 1)?;
    }
    Ok(())
}

struct Writer<'a> {
    known: HashMap<&'a str, &'a Value>,
}

impl Writer<'_> {
    /// A schema as a type.
    fn shape(&self, schema: &Value, indent: &str, depth: usize) -> Result<String, String> {
        if depth > DEPTH {
            return Err(format!("its schema nests deeper than {DEPTH}"));
        }
        let schema = match schema {
            Value::Bool(true) => return Ok("any".to_owned()),
            Value::Bool(false) => return Ok("null".to_owned()),
            Value::Object(fields) => fields,
            other => return Err(format!("{other} is no schema")),
        };
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            return self.reference(target);
        }
        if let Some(Value::Array(options)) = schema.get("anyOf") {
            let options: Vec<String> = options
                .iter()
                .map(|option| self.shape(option, indent, depth + 1))
                .collect::<Result<_, _>>()?;
            return Ok(options.join(" | "));
        }
        if let Some(Value::Array(values)) = schema.get("enum") {
            return Ok(values.iter().map(literal).collect::<Vec<_>>().join(" | "));
        }
        match schema.get("type") {
            Some(Value::Array(kinds)) => union(kinds),
            Some(Value::String(kind)) => match kind.as_str() {
                "object" => self.object(schema, indent, depth),
                "array" => self.array(schema, indent, depth),
                "integer" => Ok("number".to_owned()),
                other => Ok(other.to_owned()),
            },
            _ if schema.is_empty() => Ok("any".to_owned()),
            _ => Err(format!(
                "{} is no schema with a type",
                spaced(&Value::Object(schema.clone()))
            )),
        }
    }

    fn reference(&self, target: &str) -> Result<String, String> {
        if target == "#" {
            return Ok("parameters".to_owned());
        }
        let name = target
            .strip_prefix("#/$defs/")
            .and_then(|path| path.rsplit('/').next());
        name.filter(|name| self.known.contains_key(name))
            .map(str::to_owned)
            .ok_or_else(|| format!("the reference {target} leads nowhere"))
    }

    fn array(&self, schema: &Schema, indent: &str, depth: usize) -> Result<String, String> {
        let truthy = |items: &&Value| {
            !matches!(items, Value::Null | Value::Bool(false))
                && items.as_object().is_none_or(|items| !items.is_empty())
        };
        let Some(items) = schema.get("items").filter(truthy) else {
            return Ok("Array<any>".to_owned());
        };
        let inner = format!("{indent}  ");
        let comments = comments(items, &inner);
        if comments.is_empty() {
            return Ok(format!("Array<{}>", self.shape(items, indent, depth + 1)?));
        }
        let shape = self.shape(items, &inner, depth + 1)?;
        Ok(format!("Array<\n{comments}{inner}{shape}\n{indent}>"))
    }

    fn object(&self, schema: &Schema, indent: &str, depth: usize) -> Result<String, String> {
        let inner = format!("{indent}  ");
        let mut fields = self.fields(schema, &inner, true, depth)?;
        match schema.get("additionalProperties") {
            None | Some(Value::Null) => {}
            Some(Value::Bool(allowed)) => {
                let shape = if *allowed { "any" } else { "never" };
                fields.push(format!("{inner}[k: string]: {shape}"));
            }
            Some(other) => fields.push(format!(
                "{inner}[k: string]: {}",
                self.shape(other, &inner, depth + 1)?
            )),
        }
        if fields.is_empty() {
            return Ok("{}".to_owned());
        }
        Ok(format!("{{\n{}\n{indent}}}", fields.join(",\n")))
    }

    /// The fields of an object; `sorted`: those that are required first, and each kind by name.
    fn fields(
        &self,
        schema: &Schema,
        indent: &str,
        sorted: bool,
        depth: usize,
    ) -> Result<Vec<String>, String> {
        let Some(Value::Object(properties)) = schema.get("properties") else {
            return Ok(Vec::new());
        };
        let required = schema.get("required").and_then(Value::as_array);
        let optional = |name: &str| {
            required.is_none_or(|required| !required.iter().any(|known| known == name))
        };
        let mut fields: Vec<(&String, &Value)> = properties.iter().collect();
        if sorted {
            fields.sort_by_key(|(name, _)| (optional(name), *name));
        }
        fields
            .into_iter()
            .map(|(name, schema)| {
                let default = schema.get("default").filter(|default| !default.is_null());
                let default = default
                    .map(|default| format!("{indent}// Default: {}\n", default_text(default)));
                let mark = if optional(name) { "?" } else { "" };
                let shape = self.shape(schema, indent, depth + 1)?;
                Ok(format!(
                    "{}{}{indent}{name}{mark}: {shape}",
                    comments(schema, indent),
                    default.unwrap_or_default()
                ))
            })
            .collect()
    }
}

/// The description of a schema and its limits, as comments with their newlines.
fn comments(schema: &Value, indent: &str) -> String {
    let Some(fields) = schema.as_object() else {
        return String::new();
    };
    // What a reference, a choice or a list of values says beside itself is its description alone.
    let simple = !["$ref", "anyOf", "enum"]
        .iter()
        .any(|key| fields.contains_key(*key));
    let limits: &[&str] = match fields
        .get("type")
        .and_then(Value::as_str)
        .filter(|_| simple)
    {
        Some("string") => &["maxLength", "minLength", "pattern"],
        Some("number" | "integer") => &["maximum", "minimum"],
        Some("array") => &["maxItems", "minItems"],
        _ => &[],
    };
    let mut out = text(schema, "description")
        .map(|text| comment(text, indent) + "\n")
        .unwrap_or_default();
    let limits: Vec<String> = limits
        .iter()
        .filter_map(|name| {
            fields
                .get(*name)
                .map(|limit| format!("{name}: {}", python(limit)))
        })
        .collect();
    if !limits.is_empty() {
        out.push_str(&format!("{indent}// {}\n", limits.join(", ")));
    }
    out
}

fn comment(text: &str, indent: &str) -> String {
    let line = |line: &str| {
        if line.is_empty() {
            String::new()
        } else {
            format!("{indent}// {line}")
        }
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

fn text<'a>(schema: &'a Value, key: &str) -> Option<&'a str> {
    schema
        .get(key)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
}

/// A value as Python's `str` gives it.
fn python(json: &Value) -> String {
    let mut out = String::new();
    repr::str(&mut out, &value::from_json(json));
    out
}

fn literal(json: &Value) -> String {
    json.as_str()
        .map_or_else(|| python(json), |text| format!("\"{text}\""))
}

fn default_text(default: &Value) -> String {
    match default {
        Value::Bool(_) | Value::Number(_) => python(default),
        other => spaced(other),
    }
}

fn union(kinds: &[Value]) -> Result<String, String> {
    let kind = |kind: &Value| match kind.as_str() {
        Some("string") => Ok("string"),
        Some("number" | "integer") => Ok("number"),
        Some("boolean") => Ok("boolean"),
        Some("null") => Ok("null"),
        Some("object") => Ok("{}"),
        Some("array") => Ok("Array<any>"),
        _ => Err(format!("{kind} is no type")),
    };
    Ok(kinds
        .iter()
        .map(kind)
        .collect::<Result<Vec<_>, _>>()?
        .join(" | "))
}
