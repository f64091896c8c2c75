"""Faults that strike a join while it runs: processes are killed or stand still, files are damaged, disks are
full, clocks jump. Units of a join with ``max_units`` change in between.

Each fault is a function of a ``Target``, and returns whether it found something to strike. Faults draw from
the random numbers of the target, so the seed of a case says which faults strike, though not at which
instruction.
"""

import contextlib
import random
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

import thetastream as th
from tests.support import faults, file_faults
from tests.support.faults import Job, find_daemons, find_segments, kill_group
from tests.support.jumping_clock import set_clock
from thetastream.core.errors import ThetastreamError

SMALL_FILES = (0, 300, 5_000, 100_000)
"""Lengths in bytes at which files cannot grow further on a full disk."""
PATIENCE_S = 240
JUMPS_S = (3, 70, 4_000, 90_000, 40_000_000)
"""How far the clock jumps at most: some seconds, a minute, an hour, a day, more than a year."""
STOPPED_S = 5
"""The longest time in seconds for which a process stands still."""


@dataclass
class Target:
    """A running join, and the files that faults have taken from it."""

    job: Job
    process: "subprocess.Popen[bytes]"
    chance: random.Random
    taken: dict[Path, tuple[bytes, bytes | None]] = field(default_factory=dict)
    """Messages and control files before and after a fault. They come back before the next start, as from a
    backup, unless the join has written them again."""

    def repair(self) -> None:
        """Put the files back, and remove the offsets that an error names, as its hint says."""
        if offset := re.search(r"remove offsets/(\d+) from the checkpoint", self.job.output):
            for name in (offset[1], f".{offset[1]}.crc"):
                Path(self.job.checkpoint, "offsets", name).unlink(missing_ok=True)
        for path, (data, damaged) in self.taken.items():
            if read_if_there(path) != damaged:
                continue
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            path.unlink(missing_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        self.taken.clear()


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


def stop_jvm(target: Target) -> bool:
    """Let a JVM stand still for some seconds, as one that waits for a slow disk."""
    java = [each for each in children_of(psutil.Process(target.process.pid)) if is_jvm(each)]
    return stop_one(target, java)


def stop_worker(target: Target) -> bool:
    """Let a Python worker stand still for some seconds."""
    daemons = find_daemons(target.process.pid)
    return stop_one(target, [worker for daemon in daemons for worker in children_of(daemon)])


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
    return _take(target, find_segments(Path(target.job.mailbox)))


def damage_control(target: Target) -> bool:
    """Tear, lose, swap or replace a plan, a mark, the label or the link of the control folder."""
    files = [path for path in Path(target.job.mailbox).glob("control-*/**/*") if path.is_file()]
    return _take(target, [path for path in files if path.parent.name != "requests"])


def change_units(target: Target) -> bool:
    """Ask a join for other units."""
    with contextlib.suppress(ThetastreamError):
        handle = th.control(target.job.checkpoint)
        sizes = [th.Biclique((1, 1)), th.Biclique((2, 1)), th.Split(2), th.Split(3), th.Matrix(2, 2)]
        handle.scale(target.chance.choice(sizes))
        return True
    return False


def _take(target: Target, files: list[Path]) -> bool:
    """Damage one of the files, and keep what it was."""
    changed = _damage(target, [path for path in files if path not in target.taken])
    target.taken |= {path: (data, read_if_there(path)) for path, data in changed.items()}
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


# Clocks


def jump_clock(target: Target) -> bool:
    """Let the clock of all Python processes jump, forwards or backwards."""
    most = target.chance.choice(JUMPS_S)
    set_clock(target.job.clock, target.chance.randint(-most, most))
    return True


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


def stop_one(target: Target, processes: list[psutil.Process]) -> bool:
    """Stop one of the processes for some seconds; return whether there was one."""
    with contextlib.suppress(psutil.Error):
        if processes:
            stopped = target.chance.choice(processes)
            stopped.suspend()
            time.sleep(target.chance.uniform(0.5, STOPPED_S))
            stopped.resume()
            return True
    return False


FAULTS: dict[str, Fault] = {
    "driver killed": kill_driver,
    "executor killed": kill_executor,
    "Python worker killed": kill_worker,
    "daemon of workers killed": kill_daemon,
    "second driver": start_second_driver,
    "JVM stands still": stop_jvm,
    "Python worker stands still": stop_worker,
    "disk full for workers": fill_disk_of_workers,
    "disk full for the JVM": fill_disk_of_driver,
    "cached segment damaged": damage_cache,
    "message damaged": damage_mailbox,
    "control file damaged": damage_control,
    "other units": change_units,
    "clock jumps": jump_clock,
}
