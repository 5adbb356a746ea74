//! Figures of an engine's steps: nested in `frontend::Stats`.

use crate::record::records;

records! {
    /// Observations since the core started, by size.
    struct Histogram {
        /// Upper bounds, ascending; one more bucket has none.
        bounds: Vec<f64>,
        /// Of each bucket alone, one more than bounds.
        counts: Vec<u64>,
        /// Sum of what was observed.
        total: f64,
    }

    /// What steps were made of, and what they cost the core.
    struct StepStats {
        /// Requests that wait for a place, blocks or budget.
        waiting_capacity: u64,
        /// That wait for blocks which another request computes.
        waiting_deferred: u64,
        /// KV blocks nobody uses whose content can still be found.
        cached_blocks: u64,
        /// Computed in rows of one known token.
        decode_tokens: u64,
        /// Computed in other rows.
        prefill_tokens: u64,
        /// Rows of one known token.
        decode_rows: u64,
        /// Other rows.
        prefill_rows: u64,
        /// To make a plan and to apply its result.
        scheduler_seconds: Histogram,
        /// Tokens in one step.
        step_tokens: Histogram,
    }
}
