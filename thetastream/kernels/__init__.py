"""The Numba kernels, which take and return plain arrays."""
