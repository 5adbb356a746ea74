//! A message that requests share.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::message::Message;

/// A message of a conversation. One that grows is sent whole each time: what it begins with is read once, and later
/// requests share it, with what was made of it.
#[derive(Debug)]
pub struct SharedMessage {
    message: Message,
    /// Which form was made first, and the form.
    form: OnceLock<(u8, Arc<Value>)>,
}

impl SharedMessage {
    /// Another form of the message. Of the kind that is asked for first it is made once, of others each time.
    pub fn form(&self, kind: u8, make: impl FnOnce(&Message) -> Value) -> Arc<Value> {
        if let Some((known, form)) = self.form.get() {
            return match *known == kind {
                true => Arc::clone(form),
                false => Arc::new(make(&self.message)),
            };
        }
        let form = Arc::new(make(&self.message));
        // Another thread may have been sooner, with an equal one or one of another kind.
        let _ = self.form.set((kind, Arc::clone(&form)));
        form
    }
}

impl From<Message> for SharedMessage {
    fn from(message: Message) -> Self {
        Self {
            message,
            form: OnceLock::new(),
        }
    }
}

impl Deref for SharedMessage {
    type Target = Message;

    fn deref(&self) -> &Message {
        &self.message
    }
}

impl PartialEq for SharedMessage {
    fn eq(&self, other: &Self) -> bool {
        self.message == other.message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};

    #[test]
    fn the_first_form_is_made_once() {
        let shared = SharedMessage::from(Message {
            role: "user".to_owned(),
            content: None,
            rest: Map::new(),
        });
        let first = shared.form(1, |message| json!(message.role));
        let again = shared.form(1, |_| json!("made again"));
        assert!(Arc::ptr_eq(&first, &again) && *first == json!("user"));
        assert_eq!(*shared.form(2, |_| json!("another")), json!("another"));
        assert!(Arc::ptr_eq(&first, &shared.form(1, |_| json!(null))));
    }
}
