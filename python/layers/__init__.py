"""Layers that models are made of. They use kernels that are given to them and never look at the device."""
