//! Values that a loop began with, kept to be compared.

use minijinja::Value;
use minijinja::value::ValueKind;

use super::turns::Turns;

/// How many values a list or mapping that is kept may hold in all.
const MOST: usize = 20_000;

/// A value of a template's variable. Never changes, unlike the value itself where that is a namespace.
#[derive(Debug, Clone)]
pub(crate) enum Kept {
    /// Not defined.
    Absent,
    /// What cannot change.
    Value(Value),
    /// A namespace: its attributes.
    Space(Vec<(Value, Kept)>),
    /// A macro, of which there is one by its name.
    Macro,
    /// The conversation's messages: what is read of them is noted when it is read.
    Messages,
    /// Anything else: equal to nothing.
    Unknown,
}

impl Kept {
    /// Keeps a value.
    pub(crate) fn of(value: Value) -> Self {
        if value.is_undefined() {
            return Self::Absent;
        }
        if value.downcast_object_ref::<Turns>().is_some() {
            return Self::Messages;
        }
        match kind_of_object(&value) {
            ObjectKind::Macro => Self::Macro,
            ObjectKind::Namespace => {
                let Ok(names) = value.try_iter() else {
                    return Self::Unknown;
                };
                let attributes = names.map(|name| {
                    let attribute = value.get_item(&name).unwrap_or_default();
                    let kept = match plain(&attribute, &mut 0) {
                        true => Self::Value(attribute),
                        false => Self::Unknown,
                    };
                    (name, kept)
                });
                Self::Space(attributes.collect())
            }
            ObjectKind::Other if plain(&value, &mut 0) => Self::Value(value),
            ObjectKind::Other => Self::Unknown,
        }
    }

    /// Whether a template cannot tell the two apart.
    pub(crate) fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Absent, Self::Absent)
            | (Self::Macro, Self::Macro)
            | (Self::Messages, Self::Messages) => true,
            (Self::Value(left), Self::Value(right)) => same(left, right),
            (Self::Space(left), Self::Space(right)) => {
                left.len() == right.len()
                    && std::iter::zip(left, right)
                        .all(|(left, right)| same(&left.0, &right.0) && left.1.same(&right.1))
            }
            _ => false,
        }
    }

    /// The whole number that is kept.
    pub(crate) fn integer(&self) -> Option<i64> {
        match self {
            Self::Value(value) if value.kind() == ValueKind::Number && value.is_integer() => {
                value.as_i64()
            }
            _ => None,
        }
    }
}

enum ObjectKind {
    Namespace,
    Macro,
    Other,
}

/// minijinja's own objects are known by the names of their types alone.
fn kind_of_object(value: &Value) -> ObjectKind {
    let name = value.as_object().map_or("", |object| object.type_name());
    match name.rsplit("::").next() {
        Some("Namespace") => ObjectKind::Namespace,
        Some("Macro") => ObjectKind::Macro,
        _ => ObjectKind::Other,
    }
}

/// Whether a value is made of texts, numbers, lists and mappings alone, and is not too large to be compared.
pub(crate) fn plain(value: &Value, seen: &mut usize) -> bool {
    *seen += 1;
    if *seen > MOST {
        return false;
    }
    match value.kind() {
        ValueKind::Undefined
        | ValueKind::None
        | ValueKind::Bool
        | ValueKind::Number
        | ValueKind::String => true,
        ValueKind::Seq => {
            value.downcast_object_ref::<Turns>().is_none()
                && value
                    .try_iter()
                    .is_ok_and(|mut items| items.all(|item| plain(&item, seen)))
        }
        ValueKind::Map => {
            matches!(kind_of_object(value), ObjectKind::Other)
                && value.try_iter().is_ok_and(|mut keys| {
                    keys.all(|key| {
                        plain(&key, seen)
                            && value.get_item(&key).is_ok_and(|item| plain(&item, seen))
                    })
                })
        }
        _ => false,
    }
}

/// Whether two plain values are the same, down to the order of keys and the kind of numbers.
fn same(left: &Value, right: &Value) -> bool {
    let kind = left.kind();
    if kind != right.kind() {
        return false;
    }
    match kind {
        ValueKind::Undefined | ValueKind::None => true,
        ValueKind::Bool => left.is_true() == right.is_true(),
        ValueKind::Number if left.is_integer() && right.is_integer() => left == right,
        ValueKind::Number => {
            let bits = |value: &Value| f64::try_from(value.clone()).map(f64::to_bits).ok();
            left.is_integer() == right.is_integer() && bits(left) == bits(right)
        }
        ValueKind::String => left.as_str() == right.as_str() && left.is_safe() == right.is_safe(),
        ValueKind::Seq => {
            left.is_tuple() == right.is_tuple()
                && left.len() == right.len()
                && match (left.try_iter(), right.try_iter()) {
                    (Ok(left), Ok(right)) => {
                        std::iter::zip(left, right).all(|(left, right)| same(&left, &right))
                    }
                    _ => false,
                }
        }
        ValueKind::Map => {
            let field = |value: &Value, key: &Value| value.get_item(key).unwrap_or_default();
            left.len() == right.len()
                && match (left.try_iter(), right.try_iter()) {
                    (Ok(keys), Ok(others)) => std::iter::zip(keys, others).all(|(key, other)| {
                        same(&key, &other) && same(&field(left, &key), &field(right, &other))
                    }),
                    _ => false,
                }
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::from_json;
    use minijinja::{Environment, context};
    use serde_json::json;

    fn evaluated(expression: &str) -> Kept {
        let env = Environment::new();
        let compiled = env.compile_expression(expression).unwrap();
        Kept::of(compiled.eval(context! {}).unwrap())
    }

    #[test]
    fn values_are_told_apart_as_templates_do() {
        let values = [
            json!(null),
            json!(true),
            json!(1),
            json!(1.0),
            json!("1"),
            json!([1]),
            json!([1.0]),
            json!({"a": 1, "b": 2}),
            json!({"b": 2, "a": 1}),
        ];
        for (place, left) in values.iter().enumerate() {
            for (other, right) in values.iter().enumerate() {
                let (left, right) = (Kept::of(from_json(left)), Kept::of(from_json(right)));
                assert_eq!(left.same(&right), place == other, "{left:?} {right:?}");
            }
        }
        assert!(!evaluated("(1, 2)").same(&evaluated("[1, 2]")));
        assert!(!evaluated("'a'|safe").same(&evaluated("'a'")));
    }

    #[test]
    fn namespaces_are_kept_as_they_were() {
        assert!(matches!(evaluated("namespace(a=1)"), Kept::Space(_)));
        assert!(evaluated("namespace(a=1)").same(&evaluated("namespace(a=1)")));
        assert!(!evaluated("namespace(a=1)").same(&evaluated("namespace(a=1, b=none)")));
        // What holds a namespace may change.
        assert!(matches!(evaluated("[namespace(a=1)]"), Kept::Unknown));
        assert!(matches!(evaluated("{'a': namespace()}"), Kept::Unknown));
        let inner = evaluated("namespace(a=namespace())");
        assert!(!inner.same(&inner));
        assert!(matches!(evaluated("range"), Kept::Unknown));
        assert!(matches!(evaluated("missing"), Kept::Absent));
    }
}
