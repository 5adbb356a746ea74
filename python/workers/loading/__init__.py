"""Weights from files into a model: sources of tensors, and the strict loader."""
