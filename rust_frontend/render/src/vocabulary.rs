//! The model's words and end tokens, as grammars see them.

use std::path::Path;

use octavo_grammar::constraint::{ConstraintError, Specials, Vocabulary, Word};
use octavo_tokenizer::Tokenizer;

use crate::defaults::Defaults;
use crate::renderer::LoadError;

/// The vocabulary of a model folder, for logits of `width`.
///
/// # Errors
/// A file that is missing or damaged; a model without an end token.
pub fn vocabulary(dir: &Path, width: usize) -> Result<Vocabulary, LoadError> {
    let tokenizer = Tokenizer::load(dir)?;
    let defaults = Defaults::load(dir, &tokenizer)?;
    of(&tokenizer, &defaults, width)
        .map_err(|error| LoadError::File(dir.to_owned(), error.to_string()))
}

/// The vocabulary of a tokenizer whose end tokens are known.
pub(crate) fn of(
    tokenizer: &Tokenizer,
    defaults: &Defaults,
    width: usize,
) -> Result<Vocabulary, ConstraintError> {
    let words: Vec<Word> = tokenizer
        .words()
        .into_iter()
        .map(|word| match word {
            octavo_tokenizer::Word::Bytes(bytes) => Word::Bytes(bytes),
            octavo_tokenizer::Word::Special(name) => Word::Special(name),
        })
        .collect();
    let end: Vec<u32> = defaults.eos.iter().map(|id| id.cast_unsigned()).collect();
    Vocabulary::new(&words, width, &end)
}

/// The tokens that a grammar must name, and those that end an output.
pub(crate) fn specials(tokenizer: &Tokenizer, defaults: &Defaults) -> Specials {
    let named = tokenizer
        .words()
        .into_iter()
        .zip(0u32..)
        .filter_map(|(word, id)| match word {
            octavo_tokenizer::Word::Special(name) => Some((name, id)),
            octavo_tokenizer::Word::Bytes(_) => None,
        });
    let end: Vec<u32> = defaults.eos.iter().map(|id| id.cast_unsigned()).collect();
    Specials::new(named.collect()).ending(&end)
}
