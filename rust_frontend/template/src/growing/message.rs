//! One message of a conversation, as templates read it.

use std::sync::Arc;

use minijinja::Value;
use minijinja::value::{Enumerator, Object};
use serde_json::{Map, Value as Json};

use crate::chat::aliased;
use crate::value::from_json;

/// Bytes that a message takes besides its texts.
const OVERHEAD: usize = 256;

/// A message: a mapping of a few fields, in order. Never changes.
#[derive(Debug)]
pub(crate) struct Message {
    /// Its place in the conversation.
    pub(crate) number: usize,
    fields: Vec<(Value, Value)>,
    bytes: usize,
}

impl Message {
    /// Converts a message, with the names of reasoning that Transformers adds.
    pub(crate) fn new(number: usize, json: &Json) -> Self {
        let none = Map::new();
        let fields = aliased(json.as_object().unwrap_or(&none));
        let bytes = fields.iter().map(|(_, field)| size(field)).sum::<usize>();
        let fields = fields.into_iter();
        Self {
            number,
            bytes: OVERHEAD + bytes,
            fields: fields
                .map(|(name, field)| (Value::from(name), from_json(field)))
                .collect(),
        }
    }

    /// Whether this is that message: the same fields in the same order, with the same values.
    pub(crate) fn is(&self, json: &Json) -> bool {
        let Some(fields) = json.as_object() else {
            return false;
        };
        let fields = aliased(fields);
        fields.len() == self.fields.len()
            && std::iter::zip(&self.fields, fields).all(|((name, value), (other, json))| {
                name.as_str() == Some(other) && same_json(json, value)
            })
    }

    /// Bytes of memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Object for Message {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        let mut fields = self.fields.iter();
        let found = fields.find(|(name, _)| name.as_str() == Some(key))?;
        Some(found.1.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.fields.iter().map(|(name, _)| name.clone()).collect())
    }
}

/// Bytes of memory of a value, about.
pub(crate) fn size(json: &Json) -> usize {
    const EACH: usize = 48;
    EACH + match json {
        Json::String(text) => text.len(),
        Json::Array(items) => items.iter().map(size).sum(),
        Json::Object(fields) => fields
            .iter()
            .map(|(name, field)| name.len() + size(field))
            .sum(),
        _ => 0,
    }
}

/// Whether a value is what this JSON converts to, down to the order of keys and the kind of numbers.
pub(crate) fn same_json(json: &Json, value: &Value) -> bool {
    use minijinja::value::ValueKind as Kind;
    match (json, value.kind()) {
        (Json::Null, Kind::None) => true,
        (Json::Bool(flag), Kind::Bool) => value.is_true() == *flag,
        (Json::Number(number), Kind::Number) => {
            if let Some(integer) = number.as_i64() {
                value.is_integer() && value.as_i64() == Some(integer)
            } else if let Some(integer) = number.as_u64() {
                value.is_integer() && u64::try_from(value.clone()).is_ok_and(|own| own == integer)
            } else {
                let float = number.as_f64().unwrap_or(f64::NAN);
                !value.is_integer()
                    && f64::try_from(value.clone())
                        .is_ok_and(|own| own.to_bits() == float.to_bits())
            }
        }
        (Json::String(text), Kind::String) => value.as_str() == Some(text),
        (Json::Array(items), Kind::Seq) => {
            value.len() == Some(items.len())
                && value.try_iter().is_ok_and(|own| {
                    std::iter::zip(items, own).all(|(json, value)| same_json(json, &value))
                })
        }
        (Json::Object(fields), Kind::Map) => {
            value.len() == Some(fields.len())
                && value.try_iter().is_ok_and(|keys| {
                    std::iter::zip(fields, keys).all(|((name, json), key)| {
                        key.as_str() == Some(name)
                            && value.get_item(&key).is_ok_and(|own| same_json(json, &own))
                    })
                })
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn written(json: &Json) -> String {
        json.to_string()
    }

    fn some_json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            (-2i64..3).prop_map(Json::from),
            Just(json!(u64::MAX)),
            Just(json!(1.0)),
            Just(json!(-0.0)),
            Just(json!(0.0)),
            "[a-c]{0,2}".prop_map(Json::from),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Json::from),
                prop::collection::vec(("[a-c]", inner), 0..3)
                    .prop_map(|fields| Json::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Two texts of JSON are alike exactly where the JSON is the same, order and kinds of numbers included.
        #[test]
        fn the_same_is_what_is_written_the_same(left in some_json(), right in some_json()) {
            prop_assert!(same_json(&left, &from_json(&left)));
            prop_assert_eq!(same_json(&left, &from_json(&right)), written(&left) == written(&right));
        }

        #[test]
        fn a_message_is_itself_alone(content in some_json(), other in some_json(), thought in some_json()) {
            let json = json!({"role": "user", "content": content, "reasoning": thought});
            let message = Message::new(3, &json);
            prop_assert!(message.is(&json));
            let mut changed = json.clone();
            changed["content"] = other.clone();
            prop_assert_eq!(message.is(&changed), written(&content) == written(&other));
        }
    }
}
