//! The header that names what of a request has no effect.

use axum::response::Response;
use http::{HeaderName, HeaderValue};

/// Which header it is.
const HEADER: &str = "x-octavo-warning";

/// Names are cut to so many characters, and so many of them are told.
const MOST: (usize, usize) = (64, 20);

/// Adds the header where there are names to tell.
#[must_use]
pub fn warn(mut response: Response, ignored: &[String]) -> Response {
    if let Some(value) = value(ignored) {
        response
            .headers_mut()
            .insert(HeaderName::from_static(HEADER), value);
    }
    response
}

/// The header's value: letters, digits and a few signs, whatever the client sent.
fn value(ignored: &[String]) -> Option<HeaderValue> {
    if ignored.is_empty() {
        return None;
    }
    let (length, count) = MOST;
    let clean = |name: &String| -> String {
        let known = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        let shown = |c: char| if known(c) { c } else { '?' };
        name.chars().take(length).map(shown).collect()
    };
    let names: Vec<String> = ignored.iter().take(count).map(clean).collect();
    let more = match ignored.len().saturating_sub(count) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let text = format!("ignored fields: {}{more}", names.join(", "));
    HeaderValue::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_without_what_a_header_cannot_hold() {
        assert_eq!(value(&[]), None);
        let names = ["a_b".to_owned(), "x\r\ny: z".to_owned(), "é".repeat(99)];
        let told = value(&names).unwrap();
        let expected = format!("ignored fields: a_b, x??y??z, {}", "?".repeat(64));
        assert_eq!(told, expected.as_str());
        let many: Vec<String> = (0..23).map(|i| format!("f{i}")).collect();
        assert!(
            value(&many)
                .unwrap()
                .to_str()
                .unwrap()
                .ends_with("f19 and 3 more")
        );
    }
}
