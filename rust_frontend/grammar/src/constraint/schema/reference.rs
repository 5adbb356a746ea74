//! Finding what `$ref` names. Nothing is ever fetched.

use serde_json::Value;

use super::draft::Draft;

/// The part of a document that a reference names: `#`, `#/a/b`, `#anchor`, or any of them behind the `$id` of the resource.
pub(crate) fn resolve<'a>(
    root: &'a Value,
    resource: &'a Value,
    draft: Draft,
    reference: &str,
) -> Option<&'a Value> {
    let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
    let within = if base.is_empty() || names(resource, draft, base) {
        resource
    } else {
        find(root, &|schema| names(schema, draft, base), 0)?
    };
    if fragment.is_empty() {
        return Some(within);
    }
    let fragment = percent_decoded(fragment)?;
    if fragment.starts_with('/') {
        return within.pointer(&fragment);
    }
    let anchored = |schema: &Value| {
        let by_id = schema.get(draft.id()).and_then(Value::as_str) == Some(&format!("#{fragment}"));
        let by_anchor = schema.get("$anchor").and_then(Value::as_str) == Some(&fragment);
        if draft >= Draft::D2019 {
            by_anchor
        } else {
            by_id
        }
    };
    find(within, &anchored, 0)
}

/// Whether a schema is a resource of its own.
pub(crate) fn is_resource(schema: &Value, draft: Draft) -> bool {
    schema
        .get(draft.id())
        .and_then(Value::as_str)
        .is_some_and(|id| !id.starts_with('#'))
}

fn names(schema: &Value, draft: Draft, base: &str) -> bool {
    schema
        .get(draft.id())
        .and_then(Value::as_str)
        .is_some_and(|id| id.trim_end_matches('#') == base)
}

fn find<'a>(value: &'a Value, wanted: &dyn Fn(&Value) -> bool, depth: usize) -> Option<&'a Value> {
    if depth > 128 {
        return None;
    }
    match value {
        Value::Object(map) => {
            if wanted(value) {
                return Some(value);
            }
            map.values()
                .find_map(|inner| find(inner, wanted, depth + 1))
        }
        Value::Array(items) => items
            .iter()
            .find_map(|inner| find(inner, wanted, depth + 1)),
        _ => None,
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'%' {
            let hex = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(hex, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}
