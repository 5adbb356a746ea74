//! What engines say of themselves: nested in `frontend::EngineReady`.

use crate::record::records;

records! {
    /// What was done to the model of an engine, and whether it runs requests.
    #[derive(Eq)]
    struct ModelState {
        /// "0": the checkpoint's.
        weight_version: String,
        /// "running"; "paused", "sleeping": requests wait; "unusable": they wait, and for how long is bounded.
        state: String,
        /// Why it is unusable.
        note: String = String::new(),
    }

    /// What the frontend must know of a ready engine.
    struct EngineInfo {
        /// First served name.
        model: String,
        /// Longest prompt and output together, in tokens.
        max_model_len: u64,
        /// Width of the logits.
        vocab_size: u64,
        /// KV blocks.
        num_blocks: u64,
        /// Tokens a KV block.
        block_tokens: u64,
        /// Most requests that run at once.
        max_num_seqs: u64,
        /// Number of workers.
        world_size: u32,
        /// Of the weights.
        dtype: String,
        /// From start to ready.
        startup_ms: u64 = 0,
        /// Whether prefixes are looked up.
        prefix_caching: bool = true,
        /// `None`: runs the checkpoint as it is.
        model_state: Option<ModelState> = None,
        /// The model as the keys of its KV blocks name it; empty: unknown.
        cache_model: String = String::new(),
    }
}
