//! From token ids to the pieces that the parser takes.

use std::collections::HashMap;
use std::sync::Arc;

use crate::event::Event;
use crate::machine::Parser;

/// Token ids to text, one at a time: an incremental detokenizer without its special tokens.
pub trait Detokenize {
    /// Add the text that this id completes; nothing while a character is incomplete.
    fn push(&mut self, id: u32, out: &mut String);
    /// Add what an incomplete character leaves.
    fn flush(&mut self, out: &mut String);
}

/// The special tokens of a vocabulary, by id.
#[derive(Debug, Clone, Default)]
pub struct Specials {
    texts: HashMap<u32, String>,
}

impl Specials {
    /// Take ids and texts.
    pub fn new(texts: impl IntoIterator<Item = (u32, String)>) -> Self {
        Self {
            texts: texts.into_iter().collect(),
        }
    }

    /// Return the text of a special token.
    pub fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(&id).map(String::as_str)
    }
}

/// Feeds a parser with ids.
#[derive(Debug)]
pub struct Source<D> {
    specials: Arc<Specials>,
    decoder: D,
    text: String,
}

impl<D: Detokenize> Source<D> {
    /// Begin an answer.
    pub fn new(specials: Arc<Specials>, decoder: D) -> Self {
        Self {
            specials,
            decoder,
            text: String::new(),
        }
    }

    /// Feed ids and return what they set free.
    pub fn feed(&mut self, parser: &mut Parser, ids: &[u32]) -> Vec<Event> {
        for id in ids {
            self.text.clear();
            match self.specials.texts.get(id) {
                Some(special) => {
                    self.decoder.flush(&mut self.text);
                    parser.push_text(&self.text);
                    parser.push_special(special);
                }
                None => {
                    self.decoder.push(*id, &mut self.text);
                    parser.push_text(&self.text);
                }
            }
            parser.end_token();
        }
        parser.poll()
    }

    /// Feed what an incomplete last character leaves.
    pub fn flush(&mut self, parser: &mut Parser) {
        self.text.clear();
        self.decoder.flush(&mut self.text);
        parser.push_text(&self.text);
    }
}
