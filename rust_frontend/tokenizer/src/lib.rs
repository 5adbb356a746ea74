//! Tokenizer files, encode, incremental decode
