"""Measures the CPU time of the processes of a Spark query, by what they are.

    driver       this process, its JVM and its Python workers, which are all processes of a local session
    executors    the JVMs of executors and their Python workers
    compiling    the threads of all JVMs that compile bytecode, which are in neither of the two

Compilers work in the first minutes of a JVM only, so their time is not a cost of an epoch. Their threads must
live as long as the JVM, as with ``KEEP_COMPILERS``, or their time counts as time of the driver or of an
executor. Processes that have ended count for the process that started them, once it has waited for them.
"""

import contextlib
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.core.machine import process_tree

KEEP_COMPILERS = "-XX:-UseDynamicNumberOfCompilerThreads"
"""The Java option with which the JVM keeps the threads that compile."""
COMPILERS = ("C1 CompilerThre", "C2 CompilerThre")
"""The names of these threads, as Linux shortens them."""


class CpuTimes(NamedTuple):
    """CPU seconds of a process tree."""

    driver_s: float
    executors_s: float
    compiling_s: float
    ended_s: float
    """The part of the driver and the executors that processes used which have ended."""

    @property
    def living_s(self) -> float:
        """The seconds of all living processes, with compilation."""
        return self.driver_s + self.executors_s + self.compiling_s - self.ended_s

    @property
    def warm_s(self) -> float:
        """The seconds of all processes, without compilation."""
        return self.driver_s + self.executors_s

    def since(self, before: "CpuTimes") -> "CpuTimes":
        """Subtract the times of an earlier moment."""
        return CpuTimes(*(now - then for now, then in zip(self, before, strict=True)))

    def divide(self, n: int) -> "CpuTimes":
        """Divide all times by a number of epochs."""
        return CpuTimes(*(one / n for one in self))


def measure_cpu() -> CpuTimes:
    """Add the CPU times so far of this process and its descendants."""
    driver = executors = compiling = ended = 0.0
    n_jvms, on_executors = 0, set()
    # Parents come before their children, so the JVM of the driver is the first one.
    for member in process_tree():
        with contextlib.suppress(psutil.Error):
            times = member.cpu_times()
            children = times.children_user + times.children_system
            spent = times.user + times.system + children
            is_java = member.name() == "java"
            n_jvms += is_java
            compiled = read_compilers(member.pid) if is_java else 0.0
            if (is_java and n_jvms > 1) or member.ppid() in on_executors:
                on_executors.add(member.pid)
            if member.pid in on_executors:
                executors += spent - compiled
            else:
                driver += spent - compiled
            compiling += compiled
            ended += children
    return CpuTimes(driver, executors, compiling, ended)


def read_compilers(pid: int) -> float:
    """Read the CPU seconds of the threads of a JVM that compile, which only Linux tells."""
    found = 0.0
    with contextlib.suppress(OSError, psutil.Error):
        times = {thread.id: thread.user_time + thread.system_time for thread in psutil.Process(pid).threads()}
        for number, spent in times.items():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/task/{number}/comm").read_text().strip() in COMPILERS:
                    found += spent
    return found
