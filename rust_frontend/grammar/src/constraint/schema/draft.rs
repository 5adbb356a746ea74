//! Drafts of JSON Schema: what a keyword means depends on the draft that `$schema` names.

use serde_json::Value;

/// A draft. Later ones compare greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Draft {
    D4,
    D6,
    D7,
    D2019,
    D2020,
}

impl Draft {
    /// The draft that a schema names; one that it does not name, or that nobody knows, is 2020-12. `Err` is draft 3,
    /// whose keywords mean other things.
    pub(crate) fn of(schema: &Value) -> Result<Self, String> {
        let Some(named) = schema.get("$schema").and_then(Value::as_str) else {
            return Ok(Self::D2020);
        };
        Ok(match named.trim_end_matches('#') {
            "http://json-schema.org/draft-03/schema" => return Err(named.to_owned()),
            "http://json-schema.org/draft-04/schema" => Self::D4,
            "http://json-schema.org/draft-06/schema" => Self::D6,
            "http://json-schema.org/draft-07/schema" => Self::D7,
            "https://json-schema.org/draft/2019-09/schema" => Self::D2019,
            _ => Self::D2020,
        })
    }

    /// Whether the draft gives this keyword a meaning that can reject an instance.
    pub(crate) fn knows(self, keyword: &str) -> bool {
        match keyword {
            "type"
            | "enum"
            | "allOf"
            | "anyOf"
            | "oneOf"
            | "not"
            | "$ref"
            | "properties"
            | "patternProperties"
            | "additionalProperties"
            | "required"
            | "minProperties"
            | "maxProperties"
            | "items"
            | "minItems"
            | "maxItems"
            | "uniqueItems"
            | "minLength"
            | "maxLength"
            | "pattern"
            | "format"
            | "minimum"
            | "maximum"
            | "exclusiveMinimum"
            | "exclusiveMaximum"
            | "multipleOf" => true,
            "const" | "contains" | "propertyNames" => self >= Self::D6,
            "if" | "then" | "else" => self >= Self::D7,
            "dependentRequired"
            | "dependentSchemas"
            | "minContains"
            | "maxContains"
            | "unevaluatedProperties"
            | "unevaluatedItems" => self >= Self::D2019,
            "prefixItems" | "$dynamicRef" => self >= Self::D2020,
            "$recursiveRef" => self == Self::D2019,
            "additionalItems" => self <= Self::D2019,
            "dependencies" => self <= Self::D7,
            _ => false,
        }
    }

    /// The name of the keyword that names a schema.
    pub(crate) fn id(self) -> &'static str {
        if self == Self::D4 { "id" } else { "$id" }
    }
}
