//! Which parts of a prompt an assistant wrote: those between `{% generation %}` and `{% endgeneration %}`.

use std::ops::Range;

use minijinja::{State, Value};

use crate::error::RenderError;

/// The filter that stands for the pair of tags.
pub(crate) const FILTER: &str = "octavo_generation";

/// The global that holds the [`Marks`] while places are looked for, as a list of two strings.
pub(crate) const GLOBAL: &str = "octavo_generation_marks";

/// A prompt with the places that an assistant wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The text of the prompt.
    pub text: String,
    /// `[start, end)` in characters of the text, in order, none empty.
    pub assistant: Vec<Range<usize>>,
}

/// Texts that stand around what an assistant wrote while places are looked for.
#[derive(Debug)]
pub(crate) struct Marks {
    open: String,
    close: String,
}

impl Marks {
    /// Chooses marks that do not occur in a text.
    pub(crate) fn new(text: &str) -> Self {
        let mark = |kind: &str, number: u64| format!("\u{2}octavo {kind} {number}\u{3}");
        let free = |number: &u64| {
            !["open", "close"]
                .iter()
                .any(|kind| text.contains(&mark(kind, *number)))
        };
        let number = (0..).find(free).unwrap_or_default();
        Self {
            open: mark("open", number),
            close: mark("close", number),
        }
    }

    /// The value of the global.
    pub(crate) fn value(&self) -> Value {
        Value::from(vec![self.open.clone(), self.close.clone()])
    }

    /// Takes the marks out of a prompt. `plain` is the same prompt rendered without them.
    ///
    /// # Errors
    /// The template does more with what stands between the tags than to write it, so that places cannot be told.
    pub(crate) fn take_out(&self, marked: &str, plain: &str) -> Result<Rendered, RenderError> {
        let fail = |reason: &str| {
            Err(RenderError::Failed(format!(
                "it is not known which parts an assistant wrote: {reason}"
            )))
        };
        let mut text = String::with_capacity(plain.len());
        let mut assistant = Vec::new();
        // Characters so far, and where a part began.
        let (mut count, mut begun) = (0, None);
        let mut rest = marked;
        loop {
            let mark = if begun.is_some() {
                &self.close
            } else {
                &self.open
            };
            let found = rest.find(mark.as_str());
            let piece = &rest[..found.unwrap_or(rest.len())];
            text.push_str(piece);
            count += piece.chars().count();
            begun = match begun {
                None => found.map(|_| count),
                Some(start) => {
                    if count > start {
                        assistant.push(start..count);
                    }
                    None
                }
            };
            match found {
                Some(at) => rest = &rest[at + mark.len()..],
                None => break,
            }
        }
        if text.contains(&self.open) || text.contains(&self.close) {
            return fail("generation tags stand inside each other");
        }
        if text != plain {
            return fail("the template changes what stands between its generation tags");
        }
        Ok(Rendered { text, assistant })
    }
}

/// The filter: what stands between the tags, with marks around it where the environment has some.
pub(crate) fn generation(state: &State, body: &Value) -> Value {
    let marks = state.env().globals().find(|(name, _)| *name == GLOBAL);
    let Some((_, marks)) = marks else {
        return body.clone();
    };
    let mark = |index: usize| marks.get_item_by_index(index).unwrap_or_default();
    Value::from(format!("{}{body}{}", mark(0), mark(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks() -> Marks {
        Marks::new("")
    }

    #[test]
    fn marks_do_not_occur_in_the_text() {
        let first = marks();
        let second = Marks::new(&first.close);
        assert_ne!(first.open, second.open);
    }

    #[test]
    fn places_are_in_characters() {
        let Marks { open, close } = marks();
        let marked = format!("é{open}ab{close}c{open}{close}{open}世{close}");
        let rendered = marks().take_out(&marked, "éabc世").unwrap();
        assert_eq!(rendered.assistant, [1..3, 4..5]);
        let unclosed = format!("é{open}ab");
        let open_end = marks().take_out(&unclosed, "éab").unwrap().assistant;
        assert_eq!(open_end.first(), Some(&(1..3)));
        assert!(marks().take_out(&unclosed, "other").is_err());
        let nested = format!("{open}a{open}b{close}c{close}");
        assert!(marks().take_out(&nested, "abc").is_err());
    }
}
