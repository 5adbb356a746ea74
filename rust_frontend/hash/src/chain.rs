//! The hash chain over full blocks of tokens.

use blake3::Hasher;

/// Bytes of a key: 128 bits.
pub const KEY_BYTES: usize = 16;

/// Bytes of one token id, a packed little-endian int32.
const TOKEN_BYTES: usize = 4;

/// Separates these hashes from all others made with BLAKE3; a change of the scheme gets a new one.
const CONTEXT: &str = "octavo 2026-11 kv block chain v1";

/// Why a chain cannot be computed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// The first link is not a key.
    #[error(
        "root has {0} bytes; a key has {KEY_BYTES}: pass what root_key returned, or the key of the block before"
    )]
    Root(usize),
    /// The bytes are not whole tokens.
    #[error(
        "tokens has {0} bytes, which is no multiple of {TOKEN_BYTES}: pass packed little-endian int32"
    )]
    Tokens(usize),
    /// A block holds at least one token.
    #[error("block_tokens is {0}; it must be at least 1")]
    Block(usize),
}

/// Computes the keys of all full blocks, joined: [`KEY_BYTES`] for each block of `block_tokens` tokens.
///
/// `root` is a key: what [`crate::root`] gave, or the key of the block before the first one here, so that a chain can be
/// continued. `tokens` is packed little-endian int32; a last block that is not full gets no key.
///
/// # Errors
/// A root that is not [`KEY_BYTES`] long, bytes that are not whole tokens, a block of no tokens.
pub fn chain(root: &[u8], tokens: &[u8], block_tokens: usize) -> Result<Vec<u8>, ChainError> {
    let mut parent: [u8; KEY_BYTES] = root.try_into().map_err(|_| ChainError::Root(root.len()))?;
    if !tokens.len().is_multiple_of(TOKEN_BYTES) {
        return Err(ChainError::Tokens(tokens.len()));
    }
    if block_tokens == 0 {
        return Err(ChainError::Block(block_tokens));
    }
    let block_bytes = block_tokens.saturating_mul(TOKEN_BYTES);
    // Deriving the key of the context costs as much as a block: once here, then copies.
    let fresh = Hasher::new_derive_key(CONTEXT);
    let mut keys = Vec::with_capacity(tokens.len() / block_bytes * KEY_BYTES);
    for block in tokens.chunks_exact(block_bytes) {
        let mut hasher = fresh.clone();
        hasher.update(&parent).update(block);
        hasher.finalize_xof().fill(&mut parent);
        keys.extend_from_slice(&parent);
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packed(ids: &[i32]) -> Vec<u8> {
        ids.iter().flat_map(|id| id.to_le_bytes()).collect()
    }

    fn key_of(parent: &[u8], block: &[u8]) -> Vec<u8> {
        let mut hasher = Hasher::new_derive_key(CONTEXT);
        hasher.update(parent).update(block);
        hasher.finalize().as_bytes()[..KEY_BYTES].to_vec()
    }

    #[test]
    fn links_each_block_to_the_one_before() {
        let root = [7u8; KEY_BYTES];
        let tokens = packed(&[1, 2, 3, 4, 5]);
        let first = key_of(&root, &tokens[..8]);
        let second = key_of(&first, &tokens[8..16]);
        assert_eq!(chain(&root, &tokens, 2).unwrap(), [first, second].concat());
    }

    #[test]
    fn gives_nothing_without_a_full_block() {
        assert!(chain(&[0; 16], &[], 4).unwrap().is_empty());
        assert!(chain(&[0; 16], &packed(&[1, 2, 3]), 4).unwrap().is_empty());
        assert!(
            chain(&[0; 16], &packed(&[1]), usize::MAX)
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn names_the_numbers_in_errors() {
        assert_eq!(chain(&[0; 15], &[], 1), Err(ChainError::Root(15)));
        assert_eq!(chain(&[0; 16], &[1, 2, 3], 1), Err(ChainError::Tokens(3)));
        assert_eq!(chain(&[0; 16], &[], 0), Err(ChainError::Block(0)));
        assert!(ChainError::Tokens(3).to_string().contains("3 bytes"));
    }

    /// A change of the scheme would make stored blocks unreadable without anybody noticing.
    #[test]
    fn keeps_its_scheme() {
        let keys = chain(&[0; 16], &packed(&[1, -2, 3, 1 << 20]), 2).unwrap();
        let hex: String = keys.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "afbb32e2d48d48093c1b39cf3471a4c5a6c0de638651325806bf30449b7a9338"
        );
    }

    proptest! {
        #[test]
        fn continues_where_it_stopped(ids in prop::collection::vec(any::<i32>(), 0..64), block in 1usize..8, cut in 0usize..8) {
            let tokens = packed(&ids);
            let whole = chain(&[9; 16], &tokens, block).unwrap();
            let head = (cut * block * TOKEN_BYTES).min(tokens.len() / (block * TOKEN_BYTES) * (block * TOKEN_BYTES));
            let first = chain(&[9; 16], &tokens[..head], block).unwrap();
            let link = if first.is_empty() { vec![9; 16] } else { first[first.len() - KEY_BYTES..].to_vec() };
            let rest = chain(&link, &tokens[head..], block).unwrap();
            prop_assert_eq!(whole, [first, rest].concat());
        }

        #[test]
        fn changes_every_later_key(ids in prop::collection::vec(any::<i32>(), 4..64), at in any::<prop::sample::Index>()) {
            let at = at.index(ids.len() / 4 * 4);
            let mut other = ids.clone();
            other[at] = other[at].wrapping_add(1);
            let before = chain(&[0; 16], &packed(&ids), 4).unwrap();
            let after = chain(&[0; 16], &packed(&other), 4).unwrap();
            for (index, (a, b)) in before.chunks(KEY_BYTES).zip(after.chunks(KEY_BYTES)).enumerate() {
                prop_assert_eq!(a == b, index < at / 4);
            }
        }
    }
}
