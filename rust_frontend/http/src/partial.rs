//! Arguments that a limit cut.

use serde_json::{Map, Value};

/// Reads an object as far as it is complete: values that were cut are left out, and what holds them is closed. What is no
/// object at all is an empty one.
pub(crate) fn object(text: &str) -> Value {
    let parsed = serde_json::from_str(text).or_else(|_| serde_json::from_str(&closed(text)));
    match parsed {
        Ok(Value::Object(fields)) => Value::Object(fields),
        _ => Value::Object(Map::new()),
    }
}

/// The text up to the last complete value, with what is open there closed.
fn closed(text: &str) -> String {
    let mut scan = Scan::default();
    for (at, byte) in text.bytes().enumerate() {
        scan.step(at, byte);
    }
    let mut whole = text[..scan.good].to_owned();
    whole.extend(scan.closers.iter().rev().map(|&byte| char::from(byte)));
    whole
}

#[derive(Default)]
struct Scan {
    /// What closes the containers that are open, outermost first.
    open: Vec<u8>,
    in_string: bool,
    escaped: bool,
    /// Whether a string would be a key.
    key: bool,
    /// The end of the last complete value, and what was open there.
    good: usize,
    closers: Vec<u8>,
}

impl Scan {
    fn step(&mut self, at: usize, byte: u8) {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => {
                    self.in_string = false;
                    if !self.key {
                        self.complete(at + 1);
                    }
                }
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => {
                self.open.push(if byte == b'{' { b'}' } else { b']' });
                self.key = byte == b'{';
                self.complete(at + 1);
            }
            b'}' | b']' => {
                self.open.pop();
                self.key = false;
                self.complete(at + 1);
            }
            b':' => self.key = false,
            b',' => {
                self.complete(at); // a number or a word ends here
                self.key = self.open.last() == Some(&b'}');
            }
            _ => {}
        }
    }

    fn complete(&mut self, end: usize) {
        self.good = end;
        self.closers.clone_from(&self.open);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_complete_stays() {
        for (text, expected) in [
            (r#"{"a": 1, "b": "x"}"#, json!({"a": 1, "b": "x"})),
            (r#"{"a": 1, "b": "x"#, json!({"a": 1})),
            (r#"{"a": 1, "b"#, json!({"a": 1})),
            (r#"{"a": 12"#, json!({})),
            (
                r#"{"a": {"b": [1, "x,}\"", tr"#,
                json!({"a": {"b": [1, "x,}\""]}}),
            ),
            (r#"{"a": "é", "#, json!({"a": "é"})),
            ("", json!({})),
            ("[1, 2]", json!({})),
            ("}}", json!({})),
            ("{", json!({})),
        ] {
            assert_eq!(object(text), expected, "{text}");
        }
    }
}
