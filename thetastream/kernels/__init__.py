"""Numba kernels over plain arrays."""
