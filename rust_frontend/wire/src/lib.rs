//! Engine messages: encode, decode, protocol version.
//!
//! The wire is defined in `python/wire/frontend.py`; [`frontend`] mirrors it field by field. Everything is an array in
//! `MessagePack`, messages with their name as element 0. Arrays shorter than known are filled with defaults, longer
//! ones are cut, so that either side may be the newer one. `tests/wire/golden.json` holds both languages to the same
//! bytes.

mod codec;
mod embeds;
mod error;
pub mod frontend;
mod info;
mod pooling;
mod record;
mod stats;
mod types;

pub use codec::{Reader, Writer};
pub use error::DecodeError;
pub use record::{Message, Record};
pub use types::{Blob, FewTokens, Floats, Tokens, Wire};

/// Of the wire between frontend and core. Raised only when an old peer could not understand a new one.
pub const PROTOCOL: u32 = 1;

/// Of the distributions. Frontend, core and workers must be of one.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
