//! Nothing: without a build script cargo leaves build-dependencies, and their features, out.
fn main() {}
