//! `continue_final_message`: a prompt that ends inside the last message.

use std::sync::Arc;

use serde_json::Value;

use crate::error::RenderError;

/// Stands at the end of the last message while it is rendered. The space shows whether the template trims.
const MARK: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Marks the last message. Returns its text, as it was.
pub(crate) fn mark(messages: &mut [Arc<Value>], source: &str) -> Result<String, RenderError> {
    let fail = |reason: &str| RenderError::Continuation(reason.to_owned());
    let last = messages.last_mut().ok_or_else(|| fail("there is none"))?;
    let content = Arc::make_mut(last)
        .get_mut("content")
        .filter(|content| !content.is_null());
    let content = content.ok_or_else(|| fail("it has no content"))?;
    if !source.contains("content") {
        return Err(fail("the chat template does not read content"));
    }
    let text = match content {
        Value::Array(parts) => parts.iter_mut().rev().find_map(|part| part.get_mut("text")),
        other => Some(other),
    };
    match text {
        Some(Value::String(text)) => {
            let before = text.clone();
            text.push_str(MARK);
            Ok(before)
        }
        _ => Err(fail("it has no text")),
    }
}

/// Cuts the rendered prompt where the message ends.
pub(crate) fn cut(mut rendered: String, text: &str) -> Result<String, RenderError> {
    let at = rendered
        .rfind(MARK.trim_end())
        .filter(|_| rendered.contains(trim(text)));
    let at = at.ok_or_else(|| {
        let reason =
            "the chat template leaves out part of it; send it without continue_final_message";
        RenderError::Continuation(reason.to_owned())
    })?;
    let whole = rendered[at..].starts_with(MARK);
    rendered.truncate(at);
    if !whole {
        // The template trimmed the message, and with the mark gone the trimming is ours.
        let kept = rendered.trim_end_matches(crate::methods::is_space).len();
        rendered.truncate(kept);
    }
    Ok(rendered)
}

fn trim(text: &str) -> &str {
    text.trim_matches(crate::methods::is_space)
}
