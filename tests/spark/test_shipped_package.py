"""Workers that lack the package: the error says so, and the package can be sent to those of a cluster."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.cluster import StandaloneCluster
from tests.support.faults import free_port

ROOT = Path(__file__).parents[2]
HIDDEN = """
import os, sys
has_package = lambda path: os.path.isfile(os.path.join(path, "thetastream", "__init__.py"))
sys.path[:] = [path for path in sys.path if not has_package(path)]
"""
"""It runs when a worker starts, and removes the source of the package from its path."""
PROGRAM = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
import thetastream as th

master, check, artifact, *pairs = sys.argv[1:]
if master.isdigit():
    from pyspark.sql.connect.client.core import DefaultChannelBuilder
    DefaultChannelBuilder.default_port = staticmethod(lambda: int(master))
    builder = SparkSession.builder.remote("local[2]").config("spark.connect.grpc.binding.port", master)
else:
    builder = SparkSession.builder.master(master)
for pair in ("spark.driver.host=127.0.0.1", "spark.executor.memory=512m", "spark.ui.enabled=false", *pairs):
    builder = builder.config(*pair.split("=", 1))
spark = th.configure(builder, 2).getOrCreate()
if artifact:
    spark.addArtifacts(artifact, pyfile=True)
if check:
    th.configure(spark, 2)
folder = Path(__file__).parent
rows = spark.range(20).selectExpr("id", "timestamp_seconds(id) AS ts")
if check:
    print(th.join({"a": rows, "b": rows}, "a.id < b.id", model=th.Biclique(2)).count(), "pairs")
rows.write.parquet(f"file:{folder}/rows")
stream = spark.readStream.schema(rows.schema).parquet(f"file:{folder}/rows").withWatermark("ts", "1 second")
store = th.ParquetStore(f"file:{folder}/store")
joined = th.join({"a": stream, "b": stream}, "a.id < b.id", "1 minute")
query = th.write(joined, store, checkpoint=f"file:{folder}/checkpoint", trigger="available now")
query.awaitTermination()
print(store.read().num_rows, "pairs of streams")
"""
"""It joins batches and streams. Its arguments are the master, or the port of a local server of Spark Connect,
whether it checks the workers, an artifact, and settings."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    started = StandaloneCluster(tmp_path_factory.mktemp("cluster"), workers=1)
    yield started
    started.stop()


def run(
    master: str, folder: Path, *settings: str, check: str = "check", artifact: str = ""
) -> "subprocess.CompletedProcess[str]":
    """Run joins on workers that have all packages but ours, of which a folder without code is left."""
    (folder / "hidden" / "thetastream").mkdir(parents=True)
    (folder / "hidden" / "thetastream" / "errors.md").touch()
    (folder / "hidden" / "sitecustomize.py").write_text(HIDDEN)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}/hidden:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (folder / "job.py").write_text(PROGRAM)
    command = [sys.executable, str(folder / "job.py"), master, check, artifact, *settings]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python)}
    return subprocess.run(command, capture_output=True, text=True, timeout=400, check=False, env=environment)


def pack(file: Path) -> Path:
    with ZipFile(file, "w") as package:
        for path in sorted((ROOT / "thetastream").rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                package.write(path, path.relative_to(ROOT))
    return file


@pytest.mark.slow
def test_workers_without_the_package(cluster: StandaloneCluster, tmp_path: Path) -> None:
    found = run(cluster.master, tmp_path).stderr
    assert "SessionError: [WORKER_PYTHON]" in found, found
    assert "set spark.python.daemon.module=pyspark.daemon" in found, found[-3000:]


@pytest.mark.slow
def test_the_package_is_sent_as_a_zip_file(cluster: StandaloneCluster, tmp_path: Path) -> None:
    found = run(cluster.master, tmp_path, f"spark.submit.pyFiles={pack(tmp_path / 'thetastream.zip')}")
    assert found.stdout == "190 pairs\n190 pairs of streams\n", found.stderr[-6000:]


@pytest.mark.slow
def test_the_package_is_sent_as_a_wheel(cluster: StandaloneCluster, tmp_path: Path) -> None:
    wheel = pack(tmp_path / "thetastream-0.1.0-py3-none-any.whl")
    found = run(cluster.master, tmp_path, f"spark.submit.pyFiles={wheel}").stderr
    assert f"they lack thetastream; rename {wheel.name} to thetastream.zip" in found, found[-3000:]


@pytest.mark.slow
def test_a_query_on_workers_that_nobody_has_checked(tmp_path: Path) -> None:
    found = run("local[2]", tmp_path, "spark.python.daemon.module=pyspark.daemon", check="").stderr
    last = found.splitlines()[-1]
    assert last.startswith("[WORKER_PYTHON] "), found[-3000:]
    assert "No module named 'thetastream" in last
    assert "It stopped the query " in last


@pytest.mark.slow
def test_an_artifact_of_spark_connect_does_not_reach_streams(tmp_path: Path) -> None:
    artifact = str(pack(tmp_path / "thetastream.zip"))
    found = run(str(free_port()), tmp_path, artifact=artifact).stderr
    assert "SessionError: [WORKER_PYTHON]" in found, found[-3000:]
    assert "from an artifact of the session, and Spark Connect does not hand artifacts" in found
