"""What the processes of a program use: memory and descriptors."""

import contextlib
from typing import NamedTuple

import psutil


class Usage(NamedTuple):
    """Resident memory of the JVM and of all other processes, and open descriptors; all 0 without a JVM."""

    java_mb: float
    python_mb: float
    descriptors: int


def measure_processes(pid: int) -> Usage:
    """Measure a process and its children."""
    java = python = descriptors = 0
    with contextlib.suppress(psutil.Error):
        main = psutil.Process(pid)
        for each in (main, *main.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                size = each.memory_info().rss
                java, python = (java + size, python) if each.name() == "java" else (java, python + size)
                descriptors += each.num_fds()
    return Usage(java / 1e6, python / 1e6, descriptors) if java else Usage(0, 0, 0)
