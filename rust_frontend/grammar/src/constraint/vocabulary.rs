//! A tokenizer's words, as grammars see them.

use std::sync::Arc;

use llguidance::ParserFactory;
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};

use super::error::ConstraintError;

/// Longer words cannot be in the trie: grammars never allow them.
const MAX_WORD: usize = 1000;

/// What one token id stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// These bytes of text; none for ids that stand for nothing.
    Bytes(Vec<u8>),
    /// A token that is never text: a grammar allows it only where it names it.
    Special(String),
}

/// The words of one tokenizer. Cheap to clone, shared between threads.
#[derive(Clone)]
pub struct Vocabulary {
    factory: Arc<ParserFactory>,
    width: usize,
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Vocabulary")
            .field("width", &self.width)
            .finish_non_exhaustive()
    }
}

impl Vocabulary {
    /// Take the words of all ids. `width` is that of the logits: ids beyond it do not exist, ids without a word are never
    /// allowed. `end` holds the ids that end an output; they are allowed where a grammar may end, and nowhere else.
    ///
    /// # Errors
    /// No end id below `width`, or words that no trie can hold.
    pub fn new(words: &[Word], width: usize, end: &[u32]) -> Result<Self, ConstraintError> {
        let end: Vec<u32> = end
            .iter()
            .copied()
            .filter(|id| (*id as usize) < width)
            .collect();
        let Some(first) = end.first() else {
            let message =
                "this model names no end token, so that nothing can end a constrained output";
            return Err(ConstraintError::whole(message));
        };
        let size = u32::try_from(width)
            .map_err(|_| ConstraintError::whole("the vocabulary is too large"))?;
        let bytes: Vec<Vec<u8>> = (0..width)
            .map(|id| match words.get(id) {
                Some(Word::Bytes(bytes)) if bytes.len() <= MAX_WORD => bytes.clone(),
                Some(Word::Special(name)) if name.len() <= MAX_WORD => special(name),
                _ => Vec::new(),
            })
            .collect();
        let trie = TokTrie::from(&TokRxInfo::new(size, *first), &bytes).with_eos_tokens(&end);
        Self::of(Arc::new(ApproximateTokEnv::new(trie)), width)
    }

    /// A vocabulary of single bytes and one end token, 256: texts can be checked against grammars without a tokenizer.
    ///
    /// # Errors
    /// Never; the signature is that of [`Self::new`].
    pub fn bytes() -> Result<Self, ConstraintError> {
        let mut words: Vec<Word> = (0..=u8::MAX).map(|byte| Word::Bytes(vec![byte])).collect();
        words.push(Word::Special("<|end|>".to_owned()));
        Self::new(&words, words.len(), &[256])
    }

    /// The width of the logits, and of masks in bits.
    pub fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn factory(&self) -> &ParserFactory {
        &self.factory
    }

    fn of(env: TokEnv, width: usize) -> Result<Self, ConstraintError> {
        let slices = SlicedBiasComputer::json_slices();
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)
            .map_err(|error| ConstraintError::whole(error.to_string()))?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(Self {
            factory: Arc::new(factory),
            width,
        })
    }
}

/// The bytes of a special token: a byte that no text has, then its name.
fn special(name: &str) -> Vec<u8> {
    let mut bytes = vec![TokTrie::SPECIAL_TOKEN_MARKER];
    bytes.extend_from_slice(name.as_bytes());
    bytes
}
