//! Whether a template reads a message's content as one text or as a list of parts.

use octavo_template::{ChatTemplate, Conversation};
use serde_json::{Value, json};

/// How a template wants content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentFormat {
    /// One string.
    Text,
    /// A list of `{"type": "text", "text": ...}`.
    Parts,
}

/// No template says this by itself.
const PROBE: &str = "octavo-content-probe";

impl ContentFormat {
    /// Finds out by rendering a message in parts: a template that reads parts shows the text alone, one that reads text
    /// shows the list itself, fails, or shows nothing.
    pub(crate) fn probe(
        template: &ChatTemplate,
        variables: &serde_json::Map<String, Value>,
    ) -> Self {
        let conversation = Conversation {
            messages: vec![
                json!({"role": "user", "content": [{"type": "text", "text": PROBE}]}).into(),
            ],
            add_generation_prompt: true,
            variables: variables.clone(),
            ..Conversation::default()
        };
        match template.render(&conversation) {
            Ok(text) if text.contains(PROBE) && !whole_part(&text) => Self::Parts,
            _ => Self::Text,
        }
    }
}

/// Whether the probe's part was written out as it is, by `str` or as JSON.
fn whole_part(text: &str) -> bool {
    ["'", "\"", "\\\"", "&#34;", "&#39;"]
        .iter()
        .any(|quote| text.contains(&format!("{quote}{PROBE}{quote}")))
}
