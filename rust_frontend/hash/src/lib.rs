//! Keys of KV blocks.
//!
//! A block's key names its tokens and everything before them: key i is the hash of key i-1 and the tokens of block i.
//! The chain starts from a root that covers what the tokens alone do not say (model, KV dtype, weight version, salt).
//! The same key serves the device pool, the host and disk tiers and the router.

mod chain;
mod root;

pub use chain::{ChainError, KEY_BYTES, chain};
pub use root::{RootError, root};
