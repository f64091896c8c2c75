"""What a process and all its descendants hold and use: driver, JVM, Python workers.

Memory is the proportional set size (PSS): a page shared by k processes counts 1/k in each, so
forked workers and mapped segments are counted once. Where the kernel does not tell, it is the RSS.
"""

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen, TimeoutExpired

import psutil

PERIOD_SECONDS = 0.5


@dataclass
class Footprint:
    """Peak memory and CPU time of a process tree."""

    peak_rss_bytes: int = 0
    cpu_seconds: float = 0.0


def resident_bytes(pid: int) -> int:
    """PSS of one process, RSS where PSS is not to be had, 0 for a process that is gone."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def cpu_seconds_of_tree() -> float:
    """CPU time so far of this process and its living descendants."""
    root = psutil.Process()
    total = 0.0
    for member in [root, *root.children(recursive=True)]:
        try:
            times = member.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


def watch(process: Popen[bytes], timeout_seconds: float) -> Footprint:
    """Sample a process tree until its root ends; end the tree at the time limit or when interrupted."""
    try:
        return _watch(process, timeout_seconds)
    finally:
        if process.poll() is None:
            root = psutil.Process(process.pid)
            for member in [*reversed(root.children(recursive=True)), root]:
                with contextlib.suppress(psutil.Error):
                    member.kill()
            process.wait()


def _watch(process: Popen[bytes], timeout_seconds: float) -> Footprint:
    footprint = Footprint()
    deadline = time.monotonic() + timeout_seconds
    root = psutil.Process(process.pid)
    spent: dict[int, float] = {}
    while True:
        try:
            process.wait(PERIOD_SECONDS)
            break
        except TimeoutExpired:
            pass
        try:
            tree = [root, *root.children(recursive=True)]
        except psutil.Error:
            break
        held = 0
        for member in tree:
            held += resident_bytes(member.pid)
            try:
                times = member.cpu_times()
            except psutil.Error:
                continue
            spent[member.pid] = times.user + times.system
        footprint.peak_rss_bytes = max(footprint.peak_rss_bytes, held)
        footprint.cpu_seconds = sum(spent.values())
        if time.monotonic() > deadline:
            raise TimeoutError(f"no result within {timeout_seconds:.0f} s")
    process.wait()
    return footprint
