//! Chat templates with Hugging Face semantics
