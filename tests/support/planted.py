"""Modules that another user has planted in a folder. Each one that runs leaves a file there."""

from pathlib import Path

NAMES = ("duckdb", "pandas", "numpy", "numba", "pyarrow", "py4j", "pyspark_planted")
"""Modules that our processes import, and a name that Spark takes for a package of data sources."""
MODULE = """
import os, sys, traceback
with open(os.path.join(os.path.dirname(__file__), f"ran-{__name__}-{os.getpid()}"), "w") as file:
    print(sys.orig_argv, sys.path, *traceback.format_stack(), file=file)
raise ImportError(f"{__name__} is planted")
"""


def plant(folder: Path) -> None:
    """Plant modules in a folder."""
    for name in NAMES:
        (folder / f"{name}.py").write_text(MODULE)


def list_victims(folder: Path) -> list[str]:
    """Describe the processes in which planted modules have run."""
    return [file.read_text() for file in folder.glob("ran-*")]
