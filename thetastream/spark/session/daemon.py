"""Spark's Python worker daemon, which loads our libraries before it forks workers.

The setting ``spark.python.daemon.module`` names this module; ``th.configure`` sets it on a builder. Workers
then share the memory of the libraries and start in milliseconds. The daemon also removes Spark's zipped copy
of PySpark from the path if PySpark is installed, because a worker reads the directory of each zip file on its
path again before every task, which takes 50 ms.

A worker of an interactive session finds modules of the current folder behind all installed ones.

PySpark's daemon lets a worker collect all garbage after each task. The collector then visits all objects that
the worker has made since it froze its libraries, which is 7 to 9 % of the CPU time of a worker of small or
medium epochs. Here a worker collects the garbage of its last task, and all garbage after some tasks.

The daemon and its workers ignore SIGTERM, which systemd sends to all processes of a job that should end after
its running epoch. They end with their JVM, which closes the standard input of the daemon.
"""

import gc
import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

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


WHOLE_COLLECTIONS = 16
"""A worker collects all garbage after so many tasks. Python itself does so too if many objects have become
old since."""


def make_collector(collect: Callable[[int], int] = gc.collect) -> Callable[[], int]:
    """Return the function that a worker calls after each task, in place of ``gc.collect``.

    Objects that have survived two collections are old, and only each ``WHOLE_COLLECTIONS``-th call visits
    these too. What a task leaves behind is young.

    Examples
    --------
    >>> generations = []
    >>> collect = make_collector(lambda generation: generations.append(generation) or 0)
    >>> for _ in range(WHOLE_COLLECTIONS):
    ...     _ = collect()
    >>> generations[0], generations[-1], generations.count(2)
    (1, 2, 1)
    """
    tasks = count(1)

    def collect_after_task() -> int:
        return collect(1 if next(tasks) % WHOLE_COLLECTIONS else 2)

    return collect_after_task


def set_handler(number: int, handler: Any) -> Any:
    """Set the handler of a signal as ``signal.signal`` does, but leave SIGTERM ignored."""
    return signal.signal(number, signal.SIG_IGN if number == signal.SIGTERM else handler)


if __name__ == "__main__":
    prefer_installed_pyspark()
    search_last_folder()
    import pandas  # noqa: F401
    from pyspark import daemon

    import thetastream.kernels.keys
    import thetastream.kernels.points
    import thetastream.kernels.sets
    import thetastream.kernels.tiles
    import thetastream.kernels.walk
    import thetastream.runtime.epoch  # noqa: F401

    gc.collect()
    gc.freeze()
    vars(daemon)["gc"] = SimpleNamespace(collect=make_collector())
    vars(daemon)["signal"] = SimpleNamespace(**{**vars(signal), "signal": set_handler})
    daemon.manager()
