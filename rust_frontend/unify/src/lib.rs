//! No code: what counts is the list of features in `Cargo.toml`.
