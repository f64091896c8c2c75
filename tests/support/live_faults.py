"""Faults that strike a join while it runs: its processes are killed, its files damaged, its disks full.

Each fault is a function of a ``Target``, and returns whether it found something to strike. Faults draw from
the random numbers of the target, so the seed of a case says which faults strike, though not at which
instruction.
"""

import contextlib
import random
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.support import faults, file_faults
from tests.support.faults import Job, find_daemons, find_segments, kill_group

SMALL_FILES = (0, 300, 5_000, 100_000)
"""Lengths in bytes at which files cannot grow further on a full disk."""
PATIENCE_S = 240


@dataclass
class Target:
    """A running join, and the files that faults have taken from it."""

    job: Job
    process: "subprocess.Popen[bytes]"
    chance: random.Random
    taken: dict[Path, bytes] = field(default_factory=dict)
    """Messages as they were before a fault. They come back before the next start, as from a backup."""

    def restart(self) -> None:
        """Put the messages back, and start the join again."""
        for path, data in self.taken.items():
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            path.unlink(missing_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        self.taken.clear()
        self.process = self.job.start()


Fault = Callable[[Target], bool]


# Processes


def kill_driver(target: Target) -> bool:
    """Kill the driver and all of its processes."""
    kill_group(target.process)
    return True


def kill_worker(target: Target) -> bool:
    """Kill a Python worker, in which a unit runs."""
    return faults.kill_worker(target.process.pid, target.chance)


def kill_daemon(target: Target) -> bool:
    """Kill the process that forks Python workers."""
    return kill_one(target, find_daemons(target.process.pid))


def kill_executor(target: Target) -> bool:
    """Kill the JVM of an executor. Only a cluster has one."""
    java = [each for each in children_of(psutil.Process(target.process.pid)) if is_executor(each)]
    return kill_one(target, java)


def start_second_driver(target: Target) -> bool:
    """Start the same join on the same checkpoint beside the first one. Both run until one of them ends."""
    first, second = target.process, target.job.start()
    end = time.monotonic() + PATIENCE_S
    while first.poll() is None and second.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    target.process, other = (first, second) if second.poll() is not None else (second, first)
    kill_group(other)
    return True


# Disks


def fill_disk_of_workers(target: Target) -> bool:
    """No file that a Python worker writes can grow any further."""
    n_limited = 0
    for daemon in find_daemons(target.process.pid):
        for worker in children_of(daemon):
            n_limited += limit_files(worker, target.chance.choice(SMALL_FILES))
    return bool(n_limited)


def fill_disk_of_driver(target: Target) -> bool:
    """No file that the JVM writes can grow any further: checkpoint, state, shuffles, results."""
    java = [each for each in children_of(psutil.Process(target.process.pid)) if is_jvm(each)]
    n_limited = sum(limit_files(each, target.chance.choice(SMALL_FILES)) for each in java)
    return bool(n_limited)


def limit_files(process: psutil.Process, nbytes: int) -> bool:
    """Let every write of a process behind ``nbytes`` of a file fail, until the process ends."""
    with contextlib.suppress(psutil.Error):
        process.rlimit(psutil.RLIMIT_FSIZE, (nbytes, nbytes))
        return True
    return False


# Files


def damage_cache(target: Target) -> bool:
    """Tear, lose, swap or replace a cached segment."""
    return bool(_damage(target, find_segments(Path(target.job.folder, "cache"))))


def damage_mailbox(target: Target) -> bool:
    """Tear, lose, swap or replace a message, or the label of the mailbox."""
    messages = [path for path in find_segments(Path(target.job.mailbox)) if path not in target.taken]
    changed = _damage(target, messages)
    target.taken.update(changed)
    return bool(changed)


def _damage(target: Target, files: list[Path]) -> dict[Path, bytes]:
    """Damage one of the files, and return those that have changed, as they were before."""
    before = {path: data for path in files if (data := read_if_there(path)) is not None}
    if len(before) < 2:
        return {}
    file = target.chance.choice([*before])
    fault = file_faults.FAULTS[target.chance.choice([*file_faults.FAULTS])]
    with contextlib.suppress(OSError, ValueError):
        fault(target.chance, file, [path for path in before if path != file])
    return {path: data for path, data in before.items() if read_if_there(path) != data}


def read_if_there(path: Path) -> bytes | None:
    """Read a file that the join may remove meanwhile."""
    with contextlib.suppress(OSError):
        return None if path.is_symlink() else path.read_bytes()
    return None


# Processes of a join


def children_of(process: psutil.Process) -> list[psutil.Process]:
    """List all processes below one that may have ended."""
    with contextlib.suppress(psutil.Error):
        found: list[psutil.Process] = process.children(recursive=True)
        return found
    return []


def is_jvm(process: psutil.Process) -> bool:
    """Return whether a process that may have ended is a JVM."""
    with contextlib.suppress(psutil.Error):
        name: str = process.name()
        return name == "java"
    return False


def is_executor(process: psutil.Process) -> bool:
    """Return whether a process is the JVM of an executor."""
    with contextlib.suppress(psutil.Error):
        return any("CoarseGrainedExecutorBackend" in word for word in process.cmdline())
    return False


def kill_one(target: Target, processes: list[psutil.Process]) -> bool:
    """Kill one of the processes; return whether there was one."""
    with contextlib.suppress(psutil.Error):
        if processes:
            target.chance.choice(processes).kill()
            return True
    return False


FAULTS: dict[str, Fault] = {
    "driver killed": kill_driver,
    "executor killed": kill_executor,
    "Python worker killed": kill_worker,
    "daemon of workers killed": kill_daemon,
    "second driver": start_second_driver,
    "disk full for workers": fill_disk_of_workers,
    "disk full for the JVM": fill_disk_of_driver,
    "cached segment damaged": damage_cache,
    "message damaged": damage_mailbox,
}
