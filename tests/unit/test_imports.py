"""Import directions as docs/internals/house.md describes them, and what an import of the package loads."""

import subprocess
import sys
from pathlib import Path

from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[2]


def test_imports_point_downward(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    status = lint_imports(config_filename=str(ROOT / ".importlinter"), no_cache=True)
    assert status == 0, capsys.readouterr().out


def test_the_package_loads_neither_pandas_nor_numba():
    heavy = ("pandas", "numba", "sqlglot", "duckdb", "matplotlib")
    code = f"import sys, thetastream; print([name for name in {heavy} if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
