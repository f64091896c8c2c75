"""What a program prints on standard error: nothing in a normal run, and one paragraph last if a query fails.

Each test runs a program of its own, because the standard error of Spark belongs to the process.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JOIN = """
import sys, tempfile, warnings
import numpy as np
import thetastream as th

spark = th.local_session(2)
folder = tempfile.mkdtemp()
spark.sql("SELECT id, timestamp_seconds(id) AS ts FROM range(20)").write.mode("overwrite").parquet(folder)
stream = spark.readStream.schema("id LONG, ts TIMESTAMP").parquet(folder).withWatermark("ts", "5 seconds")


def run(predicate):
    pairs = th.join({"a": stream, "b": stream}, on=["a.id = b.id", predicate], within="5s")
    writer = pairs.select("a.id").writeStream.format("memory").queryName("found").trigger(availableNow=True)
    writer.option("checkpointLocation", tempfile.mkdtemp()).start().awaitTermination()


@th.predicate("numpy", a=["id"], b=["id"])
def same(a, b):
    return a.id == b.id


@th.predicate("numpy", a=["id"], b=["id"])
def fails(a, b):
    if (a.id > 1).any():
        raise ValueError("no such image")
    return a.id == b.id


run(same)
print(spark.table("found").count())
print("HERE", file=sys.stderr, flush=True)
run(fails)
"""
CHECK = """
from pyspark.sql import SparkSession
import thetastream as th

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    th.configure(spark)
except th.errors.SessionError as error:
    print(error)
"""


def run(program, tmp_path, **variables):
    path = tmp_path / "program.py"
    path.write_text(program)
    asked = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path), **variables}
    environment = {name: value for name, value in asked.items() if value is not None}
    return subprocess.run(
        [sys.executable, str(path)], env=environment, capture_output=True, text=True, timeout=200
    )


def test_a_normal_run_prints_nothing_and_a_failing_one_ends_with_one_paragraph(tmp_path):
    ended = run(JOIN, tmp_path, PYTHONWARNINGS="ignore")
    assert ended.returncode == 1
    assert ended.stdout == "20\n"
    before, after = ended.stderr.split("HERE\n")
    assert before == ""
    *log, last = after.strip().splitlines()
    assert last.startswith(
        "thetastream.core.errors.PredicateError: [PREDICATE_RAISED] predicate 'fails' raised"
    )
    assert re.search(r"It stopped the query [\w-]+\. Set THETASTREAM_TRACEBACK=1", last)
    assert not [line for line in log if line.startswith(("\tat ", "Traceback"))], after


@pytest.mark.slow
def test_workers_that_lack_packages_are_found_by_configure(tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    # The home of the other tests has no PySpark for a Python that lacks it.
    ended = run(CHECK, tmp_path, PYSPARK_PYTHON=str(bare), SPARK_HOME=None)
    assert ended.stdout.startswith("[WORKER_PYTHON] "), ended.stderr
    assert "pyarrow" in ended.stdout
    assert f"set PYSPARK_PYTHON={sys.executable}" in ended.stdout
