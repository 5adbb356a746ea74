//! Which engine core is likely to have a prompt's prefix in its cache.
//!
//! The router keeps the keys of the blocks of the prompts that it sent to each core, as many as the core's cache can
//! hold: the same keys as the core's own. It is a guess, for a core may have dropped blocks meanwhile; a wrong one costs
//! time and nothing else.

use std::collections::HashSet;

use octavo_hash::{KEY_BYTES, chain, root};
use octavo_wire::frontend::{Domain, EngineInfo};

/// Of one block of a prompt and all before it.
pub(crate) type Key = [u8; KEY_BYTES];

/// Of the weights of a checkpoint that nobody has updated.
pub const BASE_VERSION: &str = "0";

/// The version of the weights that an engine runs.
pub(crate) fn weight_version(info: &EngineInfo) -> &str {
    info.model_state
        .as_ref()
        .map_or(BASE_VERSION, |state| &state.weight_version)
}

/// The keys of a prompt's full blocks, as the engine computes them (`octavo.engine_core.cache.domain`).
pub(crate) fn keys(info: &EngineInfo, prompt: &[i32], domain: Option<&Domain>) -> Vec<Key> {
    let mut fields: Vec<(&str, &str)> = vec![
        ("model", &info.cache_model),
        ("kv_dtype", &info.dtype),
        ("weight_version", weight_version(info)),
    ];
    if let Some(domain) = domain {
        let named = [("adapter", &domain.adapter), ("salt", &domain.salt)];
        let given = named.into_iter().filter(|(_, value)| !value.is_empty());
        fields.extend(given.map(|(tag, value)| (tag, value.as_str())));
        fields.extend(domain.media.iter().map(|media| ("media", media.as_str())));
    }
    let block = usize::try_from(info.block_tokens).unwrap_or(usize::MAX);
    let tokens: Vec<u8> = prompt.iter().flat_map(|id| id.to_le_bytes()).collect();
    // Neither fails where blocks hold tokens: every field has a tag, and tokens are whole.
    let Ok(root) = root(&fields) else {
        return Vec::new();
    };
    let joined = chain(&root, &tokens, block).unwrap_or_default();
    joined
        .chunks_exact(KEY_BYTES)
        .filter_map(|key| key.try_into().ok())
        .collect()
}

/// The keys that one core was given lately: two sets, of which the older one is dropped when the newer one is full.
#[derive(Debug)]
pub(crate) struct Prefixes {
    newer: HashSet<Key>,
    older: HashSet<Key>,
    /// Of each set.
    capacity: usize,
}

impl Prefixes {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            newer: HashSet::new(),
            older: HashSet::new(),
            capacity: capacity.max(1),
        }
    }

    /// How many of the keys, from the first on, are there.
    pub(crate) fn matched(&self, keys: &[Key]) -> usize {
        keys.iter()
            .take_while(|key| self.newer.contains(*key) || self.older.contains(*key))
            .count()
    }

    pub(crate) fn add(&mut self, keys: &[Key]) {
        for key in keys {
            if self.newer.len() >= self.capacity {
                self.older = std::mem::take(&mut self.newer);
            }
            self.newer.insert(*key);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.newer.clear();
        self.older.clear();
    }
}

#[cfg(test)]
mod tests {
    use octavo_wire::frontend::ModelState;

    use super::*;

    fn info() -> EngineInfo {
        EngineInfo {
            model: "m".to_owned(),
            max_model_len: 128,
            vocab_size: 1000,
            num_blocks: 64,
            block_tokens: 16,
            max_num_seqs: 8,
            world_size: 1,
            dtype: "float32".to_owned(),
            startup_ms: 0,
            prefix_caching: true,
            model_state: None,
            cache_model: "/models/tiny".to_owned(),
        }
    }

    fn of(range: std::ops::Range<i32>) -> Vec<Key> {
        keys(&info(), &range.collect::<Vec<i32>>(), None)
    }

    #[test]
    fn a_prefix_is_found_up_to_the_first_difference() {
        let mut known = Prefixes::new(100);
        known.add(&of(0..160));
        let mut prompt: Vec<i32> = (0..160).collect();
        prompt[50] = -1;
        assert_eq!(known.matched(&keys(&info(), &prompt, None)), 3);
        assert_eq!(known.matched(&of(0..1000)), 10);
        assert_eq!(known.matched(&of(1..161)), 0);
        known.clear();
        assert_eq!(known.matched(&of(0..160)), 0);
    }

    /// DP04: as in tests/unit/engine_core/cache/test_domain.py, where the engine's own function gives the same.
    #[test]
    fn dp04_keys_are_the_engines_for_salt_adapter_media_and_weights() {
        let domain = |salt: &str, adapter: &str, media: &[&str]| Domain {
            salt: salt.to_owned(),
            adapter: adapter.to_owned(),
            media: media.iter().map(|id| (*id).to_owned()).collect(),
        };
        let updated = EngineInfo {
            model_state: Some(ModelState {
                weight_version: "step-7".to_owned(),
                state: "running".to_owned(),
                note: String::new(),
            }),
            ..info()
        };
        let prompt: Vec<i32> = (0..40).collect();
        let last = |info: &EngineInfo, domain: Option<&Domain>| -> String {
            let keys = keys(info, &prompt, domain);
            assert_eq!(keys.len(), 2);
            keys[1].iter().map(|byte| format!("{byte:02x}")).collect()
        };
        let tenant = domain("tenant-2", "", &[]);
        let full = domain("s", "a", &["x", "y"]);
        assert_eq!(last(&info(), None), "2d12875964fcd67b2b98bc8baf4a12bc");
        assert_eq!(
            last(&info(), Some(&tenant)),
            "7f5cb31345a2518b95a61b8694dd4f84"
        );
        assert_eq!(
            last(&info(), Some(&full)),
            "345283afd21f8b9aa2b9744887bebbe5"
        );
        assert_eq!(last(&updated, None), "461b542ec71bcd1edfd87686e360960a");
    }

    #[test]
    fn no_more_is_kept_than_two_capacities_and_the_latest_stay() {
        let mut known = Prefixes::new(8);
        for start in 0..100 {
            known.add(&of(start * 1000..start * 1000 + 64));
            assert!(known.newer.len() + known.older.len() <= 16);
        }
        assert_eq!(known.matched(&of(99_000..99_064)), 4);
        assert_eq!(known.matched(&of(0..64)), 0);
    }
}
