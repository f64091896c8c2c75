"""Spark's Python worker daemon, which loads our libraries before it forks workers.

The setting ``spark.python.daemon.module`` names this module; ``th.configure`` sets it on a builder. Workers
then share the memory of the libraries and start in milliseconds. The daemon also removes Spark's zipped copy
of PySpark from the path if PySpark is installed, because a worker reads the directory of each zip file on its
path again before every task, which takes 50 ms.

A worker of an interactive session finds modules of the current folder behind all installed ones.
"""

import gc
import os
import sys

from thetastream.core.search_path import LAST_FOLDER


def prefer_installed_pyspark() -> None:
    """Drop ``pyspark.zip`` from ``sys.path`` if ``pyspark`` is importable without it."""
    from importlib.machinery import PathFinder

    rest = [entry for entry in sys.path if not entry.endswith((".zip", ".jar"))]
    if PathFinder.find_spec("pyspark", rest) and PathFinder.find_spec("py4j", rest):
        sys.path[:] = rest


def search_last_folder() -> None:
    """Put the folder that the session names behind all others, so that it replaces no installed module."""
    folder = os.environ.get(LAST_FOLDER)
    if folder and folder not in sys.path:
        sys.path.append(folder)


if __name__ == "__main__":
    prefer_installed_pyspark()
    search_last_folder()
    import pandas  # noqa: F401
    from pyspark.daemon import manager

    import thetastream.kernels
    import thetastream.runtime.epoch  # noqa: F401

    gc.collect()
    gc.freeze()
    manager()
