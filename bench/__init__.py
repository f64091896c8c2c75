"""Benchmarks measure workloads and the figures of the papers: ``python -m bench NAME``."""

import os

# Each core has a task or a measured thread, so products of matrices must not start threads of their own.
# NumPy reads this when it is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
