//! Vectors instead of tokens: nested in `frontend::AddRequest` and `frontend::Delta`.

use crate::Floats;
use crate::record::records;

records! {
    /// What a request wants of a model that pools: vectors instead of tokens. The frontend has checked it.
    #[derive(Eq)]
    struct Pooling {
        /// "embed", "classify": one vector; "`token_embed`", "`token_classify`": one for each token.
        task: String,
        /// Vectors of length 1, or probabilities; `None`: as the model does by default.
        activate: Option<bool> = None,
        /// The first so many numbers of an embedding; 0: all.
        dimensions: u32 = 0,
        /// Index of the first token of a pair's second text; 0: there is none.
        second: u32 = 0,
    }

    /// The vectors of a request that pools, `width` numbers each.
    struct Pooled {
        /// Numbers of a vector.
        width: u32,
        /// `width` for each vector.
        values: Floats,
    }
}

impl Pooled {
    /// The vectors, one after the other.
    pub fn vectors(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.0.chunks((self.width as usize).max(1))
    }
}
