//! The walk over a schema.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::SchemaOptions;
use super::draft::Draft;
use super::reference::{is_resource, resolve};
use crate::constraint::error::ConstraintError;

/// Schemas in one document, those behind references counted once.
const MAX_SCHEMAS: usize = 50_000;
/// Schemas within each other.
const MAX_DEPTH: usize = 96;

pub(super) type Lowered = Result<Value, ConstraintError>;

/// One schema and where it stands.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) schema: &'a Value,
    /// The resource that `#` means.
    pub(super) resource: &'a Value,
    pub(super) depth: usize,
}

impl<'a> At<'a> {
    /// A schema inside of this one.
    pub(super) fn inner(self, schema: &'a Value) -> Self {
        Self {
            schema,
            depth: self.depth + 1,
            ..self
        }
    }
}

/// The state of one walk.
pub(super) struct Lowering<'a> {
    pub(super) root: &'a Value,
    pub(super) draft: Draft,
    pub(super) options: &'a SchemaOptions,
    /// Definitions by the address of the schema that they come from.
    names: HashMap<*const Value, usize>,
    definitions: Vec<Value>,
    pub(super) schemas: usize,
}

fn too_large() -> ConstraintError {
    ConstraintError::whole(format!(
        "the schema is too large: more than {MAX_SCHEMAS} schemas, or {MAX_DEPTH} within each other"
    ))
}

impl<'a> Lowering<'a> {
    /// Lower a whole document.
    pub(super) fn run(root: &'a Value, options: &'a SchemaOptions) -> Lowered {
        let draft = Draft::of(root).map_err(|name| {
            ConstraintError::new(
                "$schema",
                format!("{name} is not supported; use draft 4 or later"),
            )
        })?;
        let mut lowering = Self {
            root,
            draft,
            options,
            names: HashMap::new(),
            definitions: Vec::new(),
            schemas: 0,
        };
        let at = At {
            schema: root,
            resource: root,
            depth: 0,
        };
        let lowered = lowering.lower(at)?;
        if lowering.definitions.is_empty() {
            return Ok(lowered);
        }
        let definitions: Map<String, Value> = lowering
            .definitions
            .into_iter()
            .enumerate()
            .map(|(index, value)| (index.to_string(), value))
            .collect();
        let mut map = match lowered {
            Value::Object(map) => map,
            other => return Ok(other),
        };
        map.insert("$defs".to_owned(), Value::Object(definitions));
        Ok(Value::Object(map))
    }

    /// Refuse what is made of more schemas than one may be made of, those that others are held against among them.
    pub(super) fn small_enough(&self) -> Result<(), ConstraintError> {
        match self.schemas > MAX_SCHEMAS {
            true => Err(too_large()),
            false => Ok(()),
        }
    }

    /// Lower one schema.
    pub(super) fn lower(&mut self, at: At<'a>) -> Lowered {
        self.schemas += 1;
        self.small_enough()?;
        if at.depth > MAX_DEPTH {
            return Err(too_large());
        }
        let map = match at.schema {
            Value::Bool(value) => return Ok(Value::Bool(*value)),
            Value::Object(map) => map,
            other => {
                return Err(ConstraintError::whole(format!(
                    "a schema must be an object or a boolean; got {}",
                    shown(other)
                )));
            }
        };
        let mut at = at;
        if is_resource(at.schema, self.draft) {
            at.resource = at.schema;
        }
        if self.draft <= Draft::D7 && map.contains_key("$ref") {
            return self.reference(at, &map["$ref"]);
        }
        let mut out = Map::new();
        let mut also = Vec::new();
        self.simple(at, map, &mut out, &mut also)?;
        self.arrays(at, map, &mut out, &mut also)?;
        self.objects(at, map, &mut out, &mut also)?;
        self.combined(at, map, &mut out, &mut also)?;
        Ok(joined(out, also))
    }

    /// Lower a schema under a keyword, so that errors name it.
    pub(super) fn under(&mut self, at: At<'a>, schema: &'a Value, keyword: &str) -> Lowered {
        self.lower(at.inner(schema))
            .map_err(|error| error.within(keyword))
    }

    /// Lower `$ref` to a definition.
    pub(super) fn reference(&mut self, at: At<'a>, reference: &Value) -> Lowered {
        let target = self.target(at, reference)?;
        let address = std::ptr::from_ref(target.schema);
        if let Some(name) = self.names.get(&address) {
            return Ok(json!({ "$ref": format!("#/$defs/{name}") }));
        }
        let name = self.definitions.len();
        self.names.insert(address, name);
        self.definitions.push(Value::Bool(true));
        let text = reference.as_str().unwrap_or_default();
        let lowered = self
            .lower(target)
            .map_err(|error| error.within(text).within("$ref"))?;
        if lowered == json!({ "$ref": format!("#/$defs/{name}") }) {
            return Err(ConstraintError::new(
                "$ref",
                format!("{text} refers to itself"),
            ));
        }
        self.definitions[name] = lowered;
        Ok(json!({ "$ref": format!("#/$defs/{name}") }))
    }

    /// What `$ref` names.
    pub(super) fn target(&self, at: At<'a>, reference: &Value) -> Result<At<'a>, ConstraintError> {
        let Some(text) = reference.as_str() else {
            let message = format!("must be a string; got {}", shown(reference));
            return Err(ConstraintError::new("$ref", message));
        };
        let found = resolve(self.root, at.resource, self.draft, text).ok_or_else(|| {
            let message =
                format!("{text} names nothing in the schema; other documents are not fetched");
            ConstraintError::new("$ref", message)
        })?;
        Ok(At {
            schema: found,
            resource: at.resource,
            depth: at.depth + 1,
        })
    }
}

/// The intersection of a schema and others.
pub(super) fn joined(mut out: Map<String, Value>, mut also: Vec<Value>) -> Value {
    also.retain(|schema| *schema != Value::Bool(true) && *schema != json!({}));
    if also.contains(&Value::Bool(false)) {
        return Value::Bool(false);
    }
    if out.is_empty() && also.len() == 1 {
        return also.swap_remove(0);
    }
    if !also.is_empty() {
        out.insert("allOf".to_owned(), Value::Array(also));
    }
    Value::Object(out)
}

/// The union of schemas.
pub(super) fn any_of(mut options: Vec<Value>) -> Value {
    options.retain(|schema| *schema != Value::Bool(false));
    match options.len() {
        0 => Value::Bool(false),
        1 => options.swap_remove(0),
        _ => json!({ "anyOf": options }),
    }
}

/// A value in a message.
pub(super) fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 60 {
        return text;
    }
    text.chars().take(60).chain("…".chars()).collect()
}
