"""Triton kernels for CUDA devices of compute capability 8.0 or more; in tests, Triton's interpreter runs them."""
