"""Benchmarks measure workloads and the figures of the papers: ``python -m bench NAME``."""
