"""Benchmarks: workloads against other engines, and the figures of the papers. ``python -m bench NAME``."""
