//! What engines say of themselves, as in tests/wire/make_golden.py.

use octavo_wire::frontend::{EngineInfo, ModelState};

/// An engine's info with every field before the last.
pub(crate) fn info() -> EngineInfo {
    EngineInfo {
        model: "modèle/ü-7B 🐙".into(),
        max_model_len: 131_072,
        vocab_size: 128_256,
        num_blocks: 70_000,
        block_tokens: 16,
        max_num_seqs: 256,
        world_size: 2,
        dtype: "bfloat16".into(),
        startup_ms: 8123,
        prefix_caching: false,
        model_state: None,
        cache_model: String::new(),
    }
}

/// With the last.
pub(crate) fn unusable() -> EngineInfo {
    EngineInfo {
        model_state: Some(ModelState {
            weight_version: "step-7".into(),
            state: "unusable".into(),
            note: "für später".into(),
        }),
        ..info()
    }
}

/// With the name of the model in keys.
pub(crate) fn keyed() -> EngineInfo {
    EngineInfo {
        cache_model: "/modèle/ü".into(),
        ..unusable()
    }
}
