"""Which machine and which versions the figures belong to."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from subprocess import run
from typing import Any

import psutil

PACKAGES = ("thetastream", "pyspark", "duckdb", "pyarrow", "numpy", "numba", "pandas")


def cpu_model() -> str:
    """Name of the processor, as the kernel calls it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def package(name: str) -> str | None:
    """Installed version, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def first_line(*command: str) -> str | None:
    """First line of what a command prints, or None."""
    try:
        done = run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if done.returncode == 0 and lines else None


def describe() -> dict[str, Any]:
    """Everything a reader needs to place a figure."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": first_line("java", "-version"),
        "packages": {name: package(name) for name in PACKAGES},
        "commit": first_line("git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"),
    }
