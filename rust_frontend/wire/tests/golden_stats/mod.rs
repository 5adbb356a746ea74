//! The values of tests/wire/make_golden.py for the figures of steps.

use octavo_wire::frontend::{Histogram, StepStats};

pub(crate) fn detail() -> StepStats {
    StepStats {
        waiting_capacity: 1,
        waiting_deferred: 2,
        cached_blocks: 3,
        decode_tokens: 4,
        prefill_tokens: 5,
        decode_rows: 6,
        prefill_rows: 7,
        scheduler_seconds: Histogram {
            bounds: vec![0.001, 0.5],
            counts: vec![1, 0, 1 << 40],
            total: 2.25,
        },
        step_tokens: Histogram {
            bounds: vec![],
            counts: vec![0],
            total: 0.0,
        },
    }
}
