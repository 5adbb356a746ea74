//! Vectors in place of token ids: nested in `frontend::AddRequest`.

use crate::Blob;
use crate::record::records;

records! {
    /// Vectors that stand for all tokens of the prompt, whose ids then name nothing: they are 0.
    #[derive(Eq)]
    struct Embeds {
        /// Numbers of a vector.
        width: u32,
        /// "float32", "float16", "bfloat16".
        dtype: String,
        /// Little-endian, `width` numbers for each token of the prompt.
        values: Blob,
    }
}
