"""Structured output: grammars compiled beside the steps, and masks computed while the forward runs."""
