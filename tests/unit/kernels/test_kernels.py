"""Kernels are compiled once per machine, by the first process or by several processes at the same time."""

import ast
import os
import subprocess
import sys
from pathlib import Path

from thetastream import kernels

PROCESSES = 2
CALL = """
import numpy as np
from thetastream.kernels.walk import walk

def longs(*values):
    return np.array(values, dtype=np.int64)

rows = np.arange(2000, dtype=np.int64).reshape(-1, 2)
cursor = longs(0, -1, -1, 0, 0)
probe, stored = np.zeros(100, np.int64), np.zeros(100, np.int64)
n = walk(rows, longs(0, 1000), 1, longs(0, 0), longs(1, 1), longs(11, 500), longs(25, 508),
         longs(0), longs(0), longs(14, 0).reshape(1, -1), longs(99, 504).reshape(1, -1), 0, cursor,
         probe, stored, longs(), longs(), longs().reshape(0, 2), longs(0), longs(), longs(), 1000)
print(list(zip(probe[:n].tolist(), stored[:n].tolist())), cursor[3])
"""


SHARED = {"Bools", "Floats", "Int64s", "Singles", "jit"}


def test_a_kernel_calls_kernels_of_its_own_file_only() -> None:
    """The code of a kernel that Numba keeps on the disk has that of the kernels that it calls. Numba makes it
    again if its own file has changed, and does not look at other files."""
    files = list(Path(kernels.__file__).parent.glob("*.py"))
    assert len(files) > 4
    for file in files:
        imports = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
        ours = [node for node in imports if str(node.module).startswith("thetastream")]
        assert {alias.name for node in ours for alias in node.names} <= SHARED


def test_many_processes_fill_one_fresh_cache(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", CALL],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(PROCESSES)
    ]
    outputs = [process.communicate(timeout=600) for process in processes]
    assert [process.returncode for process in processes] == [0] * PROCESSES, outputs
    expected = [(0, row) for row in range(7, 13)] + [(1, row) for row in range(250, 253)]
    assert {output for output, _ in outputs} == {f"{expected} 12\n"}
    assert list(tmp_path.rglob("*.nbc"))
