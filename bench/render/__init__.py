"""Prompts of chats: octavo_native beside Transformers, in the same process, on the same conversations."""
