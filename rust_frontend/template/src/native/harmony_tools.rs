//! Tools as TypeScript declarations, as gpt-oss was trained on them.

use serde_json::{Map, Value};

type Schema = Map<String, Value>;

/// How deep schemas may nest; what is deeper is `any`.
const DEPTH: usize = 64;

/// The section that declares functions.
pub(super) fn declare(functions: &[&Schema]) -> String {
    let mut lines = vec![
        "# Tools\n\n## functions\n".to_owned(),
        "namespace functions {\n".to_owned(),
    ];
    for function in functions {
        let name = text(function, "name").unwrap_or_default();
        let described = text(function, "description").unwrap_or_default();
        lines.extend(described.lines().map(|line| format!("// {line}")));
        let parameters = function
            .get("parameters")
            .filter(|parameters| !parameters.is_null());
        lines.push(match parameters {
            Some(parameters) => {
                format!("type {name} = (_: {}) => any;\n", shape(parameters, "", 0))
            }
            None => format!("type {name} = () => any;\n"),
        });
    }
    lines.push("} // namespace functions".to_owned());
    lines.join("\n")
}

fn text<'a>(schema: &'a Schema, key: &str) -> Option<&'a str> {
    schema.get(key).and_then(Value::as_str)
}

fn of<'a>(schema: &'a Value, key: &str) -> Option<&'a str> {
    schema.get(key).and_then(Value::as_str)
}

/// A schema as a type.
fn shape(schema: &Value, indent: &str, depth: usize) -> String {
    if depth > DEPTH {
        return "any".to_owned();
    }
    if let Some(Value::Array(options)) = schema.get("oneOf") {
        let option = |option: &Value| {
            let shape = nullable(option, shape(option, &format!("{indent}   "), depth + 1));
            format!(
                "\n{indent} | {shape}{}",
                beside(option, of(option, "description"), true)
            )
        };
        return options.iter().map(option).collect();
    }
    match schema.get("type") {
        Some(Value::Array(kinds)) => {
            let kinds: Vec<&str> = kinds
                .iter()
                .filter_map(Value::as_str)
                .map(|kind| if kind == "integer" { "number" } else { kind })
                .collect();
            if kinds.is_empty() {
                "any".to_owned()
            } else {
                kinds.join(" | ")
            }
        }
        Some(Value::String(kind)) => match kind.as_str() {
            "object" => object(schema, indent, depth),
            "string" => values(schema).unwrap_or_else(|| "string".to_owned()),
            "number" | "integer" => "number".to_owned(),
            "boolean" => "boolean".to_owned(),
            "array" => match schema.get("items") {
                Some(items) => format!("{}[]", shape(items, indent, depth + 1)),
                None => "Array<any>".to_owned(),
            },
            _ => "any".to_owned(),
        },
        _ => "any".to_owned(),
    }
}

fn values(schema: &Value) -> Option<String> {
    let values = schema.get("enum")?.as_array()?;
    let values: Vec<String> = values
        .iter()
        .filter_map(Value::as_str)
        .map(|text| format!("\"{text}\""))
        .collect();
    (!values.is_empty()).then(|| values.join(" | "))
}

fn nullable(schema: &Value, shape: String) -> String {
    let wanted = schema.get("nullable") == Some(&Value::Bool(true)) && !shape.contains("null");
    if wanted {
        format!("{shape} | null")
    } else {
        shape
    }
}

fn object(schema: &Value, indent: &str, depth: usize) -> String {
    let mut out = of(schema, "description")
        .map(|text| format!("{indent}// {text}\n"))
        .unwrap_or_default();
    out.push_str("{\n");
    let required = schema.get("required").and_then(Value::as_array);
    for (key, property) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let mark = if required.is_some_and(|names| names.iter().any(|name| name == key)) {
            ""
        } else {
            "?"
        };
        out.push_str(&field(key, mark, property, indent, depth));
    }
    out.push_str(&format!("{indent}}}"));
    out
}

fn field(key: &str, mark: &str, property: &Value, indent: &str, depth: usize) -> String {
    let mut out = String::new();
    if let Some(title) = of(property, "title") {
        out.push_str(&format!("{indent}// {title}\n{indent}//\n"));
    }
    let options = property.get("oneOf");
    if let Some(described) = of(property, "description").filter(|_| options.is_none()) {
        out.push_str(&format!("{indent}// {described}\n"));
    }
    if let Some(examples) = property
        .get("examples")
        .and_then(Value::as_array)
        .filter(|list| !list.is_empty())
    {
        out.push_str(&format!("{indent}// Examples:\n"));
        for example in examples.iter().filter_map(Value::as_str) {
            out.push_str(&format!("{indent}// - \"{example}\"\n"));
        }
    }
    if let Some(Value::Array(options)) = options {
        out.push_str(&choice(key, mark, property, options, indent, depth));
        return out;
    }
    let shape = nullable(
        property,
        shape(property, &format!("{indent}    "), depth + 1),
    );
    let default = default(property, false).filter(|_| options.is_none());
    let default = default
        .map(|default| format!(" // {default}"))
        .unwrap_or_default();
    out.push_str(&format!("{indent}{key}{mark}: {shape},{default}\n"));
    out
}

/// A field of which one of several types holds, one a line. What the field says is not said again by its first type.
fn choice(
    key: &str,
    mark: &str,
    property: &Value,
    options: &[Value],
    indent: &str,
    depth: usize,
) -> String {
    let described = of(property, "description");
    let first = options.first().and_then(|option| of(option, "description"));
    let above = described.filter(|text| first != Some(text));
    let mut out = above
        .map(|text| format!("{indent}// {text}\n"))
        .unwrap_or_default();
    if let Some(default) = default(property, false) {
        out.push_str(&format!("{indent}// {default}\n"));
    }
    out.push_str(&format!("{indent}{key}{mark}:\n"));
    for (index, option) in options.iter().enumerate() {
        let shape = nullable(option, shape(option, &format!("{indent}   "), depth + 1));
        let own = of(option, "description")
            .filter(|text| !(index == 0 && above.is_some()) && described != Some(*text));
        out.push_str(&format!(
            "{indent} | {shape}{}\n",
            beside(option, own, false)
        ));
    }
    out.push_str(&format!("{indent},\n"));
    out
}

/// What stands behind a type: its description and its default.
fn beside(option: &Value, described: Option<&str>, raw: bool) -> String {
    let said: Vec<String> = described
        .map(str::to_owned)
        .into_iter()
        .chain(default(option, raw))
        .collect();
    if said.is_empty() {
        String::new()
    } else {
        format!(" // {}", said.join(" "))
    }
}

/// The default of a schema. That of a list of values stands without quotes, unless it is `raw`.
fn default(schema: &Value, raw: bool) -> Option<String> {
    let default = schema.get("default")?;
    let listed = schema
        .get("enum")
        .and_then(Value::as_array)
        .is_some_and(|values| !values.is_empty());
    Some(match default {
        Value::String(text) if !listed => format!("default: \"{text}\""),
        Value::String(text) if !raw => format!("default: {text}"),
        other => format!("default: {other}"),
    })
}
