//! What a mock does.

use std::time::Duration;

use octavo_wire::frontend::EngineInfo;

use crate::{Fault, Output, Reject};

/// What a mock does, all of it.
#[derive(Debug, Clone)]
pub struct Script {
    /// What the frontend is told; `max_num_seqs` and `max_model_len` hold.
    pub info: EngineInfo,
    /// From the open session to readiness.
    pub startup: Duration,
    /// From the begin of a step to its tokens. Zero: as fast as the link takes them.
    pub step_time: Duration,
    /// Tokens that each running request gets in a step.
    pub tokens_per_step: usize,
    /// Prompt tokens of each request that one step computes; 0: all of them. The first token comes with the last.
    pub prefill_chunk: usize,
    /// Which tokens.
    pub output: Output,
    /// What goes wrong, and when.
    pub faults: Vec<Fault>,
    /// Which requests are refused; the first rule that fits holds.
    pub rejects: Vec<Reject>,
}

impl Script {
    /// An engine that echoes prompts, one token each 10 ms, for up to 256 requests at a time; nothing goes wrong.
    #[must_use]
    pub fn new(model: &str) -> Self {
        Self {
            info: EngineInfo {
                model: model.to_owned(),
                max_model_len: 8192,
                vocab_size: 49_152,
                num_blocks: 65_536,
                block_tokens: 16,
                max_num_seqs: 256,
                world_size: 1,
                dtype: "bfloat16".to_owned(),
                startup_ms: 0,
                prefix_caching: true,
                model_state: None,
                cache_model: String::new(),
            },
            startup: Duration::ZERO,
            step_time: Duration::from_millis(10),
            tokens_per_step: 1,
            prefill_chunk: 0,
            output: Output::Echo,
            faults: Vec::new(),
            rejects: Vec::new(),
        }
    }
}
