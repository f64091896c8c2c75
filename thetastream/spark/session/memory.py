"""The memory of Spark's processes: what a session gets, and whether it is enough.

    driver of a local session   a quarter of the machine's memory, at least 1 GiB and at most 4 GiB
    a task of a join            up to 256 MiB of its JVM, for the batches between Spark and Python
    the state of a window       twice its bytes: RocksDB holds it, and units map it into their memory

A container's limit counts as the memory of the machine. The second figure is the bound of
``thetastream.spark.dataflow.wide_rows``, 80 MB, once in each direction, in buffers that grow by doubling.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from thetastream.lowering.query import warn_caller
from thetastream.runtime.observe.epoch_lines import parse_bytes

DRIVER_MEMORY, EXECUTOR_MEMORY = "spark.driver.memory", "spark.executor.memory"
VARIABLE = "SPARK_DRIVER_MEMORY"
"""The environment variable of Spark with the memory of the driver."""
ARENAS, FEW_ARENAS = "MALLOC_ARENA_MAX", "2"
"""The variable that bounds the arenas of the C library, and its value for a JVM. By default, threads get up
to eight arenas for each core, and memory that RocksDB frees in one of them stays there."""
GIB, MIB = 1 << 30, 1 << 20
DEFAULT_BYTES = GIB
"""What Spark gives a JVM by default."""
TASK_BYTES = 256 * MIB
STATE_FACTOR = 2
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""The files in which Linux tells the limit of a container, in versions 2 and 1 of control groups."""


class SmallMemoryWarning(UserWarning):
    """The memory of the session is too small for its tasks, or for the window of a join."""


def read_machine_bytes() -> int:
    """Read the memory of this machine, or of the container in which this process runs."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _LIMITS:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.isdigit():  # Version 2 writes "max" if there is no limit.
            found = min(found, int(text))
    return found


def choose_driver_memory(machine_bytes: int) -> str:
    """Choose the memory of the driver of a local session.

    >>> [choose_driver_memory(gib << 30) for gib in (2, 6, 8, 64)]
    ['1024m', '1536m', '2048m', '4096m']
    """
    return f"{min(max(machine_bytes // 4, GIB), 4 * GIB) // MIB}m"


def warn_of_tasks(options: Mapping[str, str | None], cores: int, is_local: bool) -> None:
    """Warn if a JVM has too little memory for the tasks that it runs at a time.

    Parameters
    ----------
    options : mapping
        The settings of the session or of the builder.
    cores : int
        The number of Spark's cores. All of them belong to the driver if the session is local.
    is_local : bool
        Whether the tasks run in the driver.
    """
    name = DRIVER_MEMORY if is_local else EXECUTOR_MEMORY
    text = options.get(name) or (os.environ.get(VARIABLE) if is_local else None)
    tasks = cores if is_local else int(options.get("spark.executor.cores") or 1)
    has, needed = parse_bytes(text or "") or DEFAULT_BYTES, tasks * TASK_BYTES
    if has < needed:
        warn_caller(
            f"{name} should be at least {needed // MIB} MiB for {tasks} tasks at a time, it is "
            f"{has // MIB} MiB: a task of a join needs up to {TASK_BYTES // MIB} MiB for the batches between "
            f"Spark and Python; set {name} before the session starts, or give it fewer cores",
            SmallMemoryWarning,
        )


def warn_of_state(state_bytes: float, is_local: bool) -> None:
    """Warn if the state of a join, in bytes, is too large for the machine of a local session."""
    machine = read_machine_bytes()
    if is_local and STATE_FACTOR * state_bytes > machine:
        warn_caller(
            f"the windows hold about {state_bytes / 1e9:,.1f} GB, for which the session needs about "
            f"{STATE_FACTOR * state_bytes / 1e9:,.1f} GB of memory, and this machine has "
            f"{machine / 1e9:,.1f} GB: give a shorter window, carry fewer columns, or use a cluster",
            SmallMemoryWarning,
        )
