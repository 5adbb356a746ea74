//! How large the body of a route may be, where that is less than `--max-body-bytes`.

use octavo_edge::BodyLimits;

const MIB: usize = 1 << 20;

/// Routes that read little. Those that take prompts, which may hold media one day, are not here.
pub(crate) const BODY_LIMITS: BodyLimits = &[
    ("/tokenize", 16 * MIB),
    ("/detokenize", 16 * MIB),
    ("/abort_requests", MIB),
    ("/init_weight_transfer_engine", MIB),
    ("/start_weight_update", MIB),
    ("/start_draft_weight_update", MIB),
    ("/finish_weight_update", MIB),
    ("/abort_weight_update", MIB),
    ("/update_weight_version", MIB),
    ("/pause", MIB),
    ("/resume", MIB),
    ("/sleep", MIB),
    ("/wake_up", MIB),
    ("/reset_prefix_cache", MIB),
    ("/reset_mm_cache", MIB),
    ("/reset_encoder_cache", MIB),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::ACCESS;

    #[test]
    fn every_path_is_a_route() {
        for (path, _) in BODY_LIMITS {
            assert!(ACCESS.iter().any(|(known, _)| known == path), "{path}");
        }
    }
}
