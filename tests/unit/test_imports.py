"""Import directions and names as docs/internals/house.md describes them, and what an import loads."""

import ast
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
from importlinter.cli import lint_imports

from thetastream.index import Shape
from thetastream.models import Model

ROOT = Path(__file__).parents[2]


def test_imports_point_downward(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    # Otherwise the linter turns off the loggers of tests that run after this one.
    monkeypatch.setattr("logging.config.dictConfig", lambda _: None)
    status = lint_imports(config_filename=str(ROOT / ".importlinter"), no_cache=True)
    assert status == 0, capsys.readouterr().out


def test_no_files_import_each_other_in_a_circle():
    """Imports for type checkers count too: who reads one file of a circle has to read all of them."""
    graph = grimp.build_graph("thetastream", cache_dir=None)
    files = sorted(graph.modules)
    sorter = TopologicalSorter({name: graph.find_modules_directly_imported_by(name) for name in files})
    sorter.prepare()  # It raises CycleError, which names the circle.


def test_the_package_loads_neither_pandas_nor_numba():
    heavy = ("pandas", "numba", "sqlglot", "duckdb", "matplotlib")
    code = f"import sys, thetastream; print([name for name in {heavy} if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


def test_no_two_classes_have_the_same_name():
    found = Counter(
        node.name
        for file in (ROOT / "thetastream").rglob("*.py")
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, n in found.items() if n > 1] == []


def test_a_model_and_a_shape_have_as_many_members_as_the_page_says():
    page = (ROOT / "docs/internals/house.md").read_text()
    n_model, n_shape = (
        len({name for name in (*kind.__annotations__, *vars(kind)) if not name.startswith("_")})
        for kind in (Model, Shape)
    )
    assert f"A model has {n_model} members and an index shape has {n_shape}." in page
