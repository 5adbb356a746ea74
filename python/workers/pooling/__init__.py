"""Vectors out of hidden states."""
