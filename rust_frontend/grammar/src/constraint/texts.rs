//! Strings that stand without JSON's quotes: what a schema says of them, as terminals.

use llguidance::regex_to_lark;
use serde_json::{Map, Value};

use super::error::ConstraintError;
use super::matcher::Grammar;
use super::parts::unsupported;
use super::rules::Rules;
use super::sources::{Constraint, Kind};
use super::vocabulary::Vocabulary;

/// The terminal of the strings that an alternative takes; none where it takes any.
///
/// # Errors
/// A pattern that cannot be written so, or that is too large.
pub(crate) fn bounds(
    rules: &mut Rules<'_>,
    plain: &Map<String, Value>,
) -> Result<Option<String>, ConstraintError> {
    let mut all = Vec::new();
    let length = |key: &str| plain.get(key).and_then(Value::as_u64);
    if let (least, most) = (length("minLength"), length("maxLength"))
        && (least.is_some() || most.is_some())
    {
        let most = most.map_or_else(String::new, |most| most.to_string());
        all.push(format!("/(?s:.{{{},{most}}})/", least.unwrap_or(0)));
    }
    let patterns = match plain.get("pattern") {
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(one)) => vec![one.as_str()],
        _ => Vec::new(),
    };
    for pattern in patterns {
        let whole = searched(pattern).ok_or_else(|| unsupported("pattern"))?;
        all.push(format!("/{}/", regex_to_lark(&whole, "dw")));
    }
    if all.is_empty() {
        return Ok(None);
    }
    let body = all.join(" & ");
    let alone = Constraint::raw(Kind::Lark, format!("start: TEXT\nTEXT: {body}\n"));
    Grammar::compile(&alone, &Vocabulary::bytes()?)?;
    Ok(Some(rules.terminal(&body)))
}

/// An expression that the whole text matches, for one that is searched in it; none where anchors stand inside of it.
fn searched(pattern: &str) -> Option<String> {
    let (begins, rest) = match pattern.strip_prefix('^') {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    let escapes = |text: &str| text.bytes().rev().take_while(|byte| *byte == b'\\').count();
    let (ends, inner) = match rest.strip_suffix('$') {
        Some(inner) if escapes(inner).is_multiple_of(2) => (true, inner),
        _ => (false, rest),
    };
    let (anchored, divided) = structure(inner);
    if anchored || (divided && (begins || ends)) {
        return None;
    }
    let before = if begins { "" } else { "(?s:.*)" };
    let after = if ends { "" } else { "(?s:.*)" };
    Some(format!("{before}(?:{inner}){after}"))
}

/// Whether an expression has anchors inside, and whether it has alternatives outside of groups.
fn structure(inner: &str) -> (bool, bool) {
    let (mut anchored, mut divided) = (false, false);
    let (mut escaped, mut class, mut depth) = (false, false, 0_usize);
    for c in inner.chars() {
        if escaped {
            escaped = false;
            anchored |= !class && matches!(c, 'b' | 'B' | 'A' | 'z');
            continue;
        }
        match c {
            '\\' => escaped = true,
            ']' => class = false,
            _ if class => {}
            '[' => class = true,
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '|' => divided |= depth == 0,
            '^' | '$' => anchored = true,
            _ => {}
        }
    }
    (anchored, divided)
}

#[cfg(test)]
mod tests {
    use super::searched;

    #[test]
    fn patterns_are_searched() {
        assert_eq!(searched("^a|b$"), None);
        assert_eq!(searched("^(a|b)$").as_deref(), Some("(?:(a|b))"));
        assert_eq!(searched("a").as_deref(), Some("(?s:.*)(?:a)(?s:.*)"));
        assert_eq!(searched(r"^a\$").as_deref(), Some(r"(?:a\$)(?s:.*)"));
        assert_eq!(searched("a[^b$]c$").as_deref(), Some("(?s:.*)(?:a[^b$]c)"));
        assert_eq!(searched("a(^b)"), None);
    }
}
