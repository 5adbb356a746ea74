//! Messages, services and clients, generated from `proto/octavo/v1` by `make proto`.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::nursery
)]

include!("generated/octavo.v1.rs");

/// The descriptors of both files, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");
