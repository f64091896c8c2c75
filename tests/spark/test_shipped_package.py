"""Workers of a cluster that lack the package: the error says so, and the package can be sent to them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.cluster import StandaloneCluster

ROOT = Path(__file__).parents[2]
HIDDEN = """
import os, sys
has_package = lambda path: os.path.isfile(os.path.join(path, "thetastream", "__init__.py"))
sys.path[:] = [path for path in sys.path if not has_package(path)]
"""
"""It runs when a worker starts, and removes the source of the package from its path."""
PROGRAM = """
import sys
from pyspark.sql import SparkSession
import thetastream as th

master, *pairs = sys.argv[1:]
builder = SparkSession.builder.master(master).config("spark.driver.host", "127.0.0.1")
builder = builder.config("spark.executor.memory", "512m")
for pair in pairs:
    builder = builder.config(*pair.split("=", 1))
spark = th.configure(builder, 2).getOrCreate()
th.configure(spark, 2)
numbers = spark.range(20)
print(th.join({"a": numbers, "b": numbers}, "a.id < b.id", model=th.Biclique(2)).count(), "pairs")
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    started = StandaloneCluster(tmp_path_factory.mktemp("cluster"), workers=1)
    yield started
    started.stop()


def run(cluster: StandaloneCluster, folder: Path, *settings: str) -> "subprocess.CompletedProcess[str]":
    """Run a join on workers that have all packages but ours."""
    (folder / "hidden").mkdir()
    (folder / "hidden" / "sitecustomize.py").write_text(HIDDEN)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}/hidden:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (folder / "job.py").write_text(PROGRAM)
    command = [sys.executable, str(folder / "job.py"), cluster.master, *settings]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python)}
    return subprocess.run(command, capture_output=True, text=True, timeout=400, check=False, env=environment)


@pytest.mark.slow
def test_workers_without_the_package(cluster: StandaloneCluster, tmp_path: Path) -> None:
    found = run(cluster, tmp_path).stderr
    assert "SessionError: [WORKER_PYTHON]" in found, found
    assert "set spark.python.daemon.module=pyspark.daemon" in found, found[-3000:]


@pytest.mark.slow
def test_the_package_is_sent_as_a_zip_file(cluster: StandaloneCluster, tmp_path: Path) -> None:
    with ZipFile(tmp_path / "thetastream.zip", "w") as package:
        for path in sorted((ROOT / "thetastream").rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                package.write(path, path.relative_to(ROOT))
    found = run(cluster, tmp_path, f"spark.submit.pyFiles={tmp_path}/thetastream.zip")
    assert "190 pairs" in found.stdout, found.stderr[-6000:]
