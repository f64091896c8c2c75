"""Describes the machine and its versions, and measures the memory and CPU time of a process tree.

Memory is the proportional set size (PSS): a page shared by k processes counts 1/k in each, so
forked workers and mapped segments are counted once. Where the kernel does not tell it, it is the RSS.
"""

import contextlib
import os
import platform
import time
from importlib.metadata import version
from pathlib import Path
from subprocess import Popen, TimeoutExpired, run
from typing import Any

import psutil

PACKAGES = ("thetastream", "pyspark", "duckdb", "pyarrow", "numpy", "numba", "pandas")
PERIOD_SECONDS = 0.5


def cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def first_line(*command: str) -> str | None:
    """Return the first line that a command prints, or None."""
    with contextlib.suppress(OSError):
        done = run(command, capture_output=True, text=True, check=False)
        lines = (done.stdout or done.stderr).strip().splitlines()
        return lines[0] if done.returncode == 0 and lines else None
    return None


def read_commit() -> str | None:
    """Read which commit is checked out."""
    return first_line("git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD")


def describe() -> dict[str, Any]:
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": first_line("java", "-version"),
        "packages": {name: version(name) for name in PACKAGES},
        "commit": read_commit(),
    }


def resident_bytes(process: psutil.Process) -> int:
    """Return the PSS of a process, or its RSS if the kernel gives no PSS."""
    memory = process.memory_full_info()
    return int(getattr(memory, "pss", memory.rss))


def mapped_bytes(process: psutil.Process) -> int:
    """Return the part of the PSS of a process that lies in files, or 0 if the kernel gives no PSS."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss_File:"):
                return int(line.split()[1]) * 1024
    return 0


def process_tree(pid: int | None = None) -> list[psutil.Process]:
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def watch(process: Popen[bytes], timeout_seconds: float) -> dict[str, float]:
    """Measure the peak memory and the CPU time of a process tree until its root ends.

    The tree is ended at the time limit, or when the watching is interrupted.
    """
    peak, spent = 0, {process.pid: 0.0}
    deadline = time.monotonic() + timeout_seconds
    try:
        while True:
            with contextlib.suppress(TimeoutExpired):
                process.wait(PERIOD_SECONDS)
                break
            with contextlib.suppress(psutil.Error):
                held = 0
                for member in process_tree(process.pid):
                    with contextlib.suppress(psutil.Error):
                        held += resident_bytes(member)
                        times = member.cpu_times()
                        spent[member.pid] = times.user + times.system
                peak = max(peak, held)
            if time.monotonic() > deadline:
                raise TimeoutError(f"no result within {timeout_seconds:.0f} s")
    finally:
        if process.poll() is None:
            for member in reversed(process_tree(process.pid)):
                with contextlib.suppress(psutil.Error):
                    member.kill()
            process.wait()
    return {"peak_rss_bytes": peak, "cpu_seconds": sum(spent.values())}
