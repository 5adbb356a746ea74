"""`python -m bench.frontend`: what the Rust frontend costs and holds, with a scripted engine behind it."""
