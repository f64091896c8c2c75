"""A join in a pipeline of Spark Declarative Pipelines, which ``spark-pipelines`` runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thetastream.spark import pipelines

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/running/environments.md"
INSIDE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

import thetastream as th

spark = SparkSession.active()


@dp.table
def pairs():
    ticks = spark.readStream.format("rate").load().withWatermark("timestamp", "1 second")
    return th.join({"a": ticks, "b": ticks}, on="a.value = b.value", within="1 second").select("a.value")
"""


def run_pipeline(folder: Path, spec: str, code: str) -> subprocess.CompletedProcess[str]:
    """Write a pipeline, and run it."""
    (folder / "spark-pipeline.yml").write_text(spec)
    (folder / "transformations").mkdir(exist_ok=True)
    (folder / "transformations" / "pairs.py").write_text(code)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")
    }
    environment |= {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    command = [str(Path(sys.executable).with_name("spark-pipelines")), "run"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)


def read_recipe() -> tuple[str, str]:
    """Read the pipeline of the page about environments: its specification, and its code."""
    text = PAGE.read_text().partition("## Spark Declarative Pipelines")[2]
    (spec,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[:1]
    (code,) = re.findall(r"```py\n(.*?)```", text, re.DOTALL)[:1]
    return spec, code


@pytest.mark.slow
def test_the_recipe_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for alias, ids in (("bids", (1, 2)), ("asks", (2, 3))):
        lines = [f'{{"id": {number}, "ts": "2026-01-05T09:00:0{number}Z"}}' for number in ids]
        (tmp_path / "in" / alias).mkdir()
        (tmp_path / "in" / alias / "0.json").write_text("\n".join(lines))
    spec, code = read_recipe()
    done = run_pipeline(
        tmp_path, spec.replace("/data", str(tmp_path)), code.replace("/data", str(tmp_path / "in"))
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    files = [*tmp_path.glob("spark-warehouse/pairs/*.parquet")]
    assert pa.concat_tables(map(pq.read_table, files)).to_pylist() == [{"bid": 2, "ask": 2}]


@pytest.mark.slow
def test_a_join_inside_a_function_is_refused_by_name(tmp_path: Path) -> None:
    done = run_pipeline(tmp_path, read_recipe()[0].replace("/data", str(tmp_path)), INSIDE)
    assert done.returncode != 0
    assert "[PIPELINE_FUNCTION] a join reads the schemas of its streams" in done.stdout + done.stderr


def test_a_program_is_no_pipeline() -> None:
    assert not pipelines.is_pipeline()
    from pyspark.pipelines import graph_element_registry  # noqa: F401

    assert not pipelines.is_pipeline()
