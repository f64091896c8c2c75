"""Spark's Python worker daemon with our libraries loaded before it forks.

``spark.python.daemon.module`` names it (``th.configure`` on a builder sets that): workers then share
the libraries' memory and start in milliseconds. It also takes Spark's zipped copy of PySpark off the
path when an installed one answers: before every task a worker re-reads the directory of each zip on
its path, 50 ms.
"""

import gc
import sys


def prefer_installed_pyspark() -> None:
    """Drop ``pyspark.zip`` from ``sys.path`` if ``pyspark`` is importable without it."""
    from importlib.machinery import PathFinder

    rest = [entry for entry in sys.path if not entry.endswith((".zip", ".jar"))]
    if PathFinder.find_spec("pyspark", rest) and PathFinder.find_spec("py4j", rest):
        sys.path[:] = rest


if __name__ == "__main__":
    prefer_installed_pyspark()
    from pyspark.daemon import manager

    import thetastream.spark.epoch  # noqa: F401

    gc.collect()
    gc.freeze()
    manager()
