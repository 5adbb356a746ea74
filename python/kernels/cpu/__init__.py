"""Ops that beat the reference on CPUs. What is not here is taken from `ref`."""
