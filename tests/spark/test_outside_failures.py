"""Queries that end for a reason outside of them: damaged checkpoints and full disks, on Spark."""

import random
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

import thetastream as th
from tests.support.checkpoint_damage import EXACT, KINDS, run_cases
from tests.support.faults import Job, add_empty_files, oracle, read_committed, write_streams
from tests.support.live_faults import is_jvm, limit_files
from thetastream.spark.session.failure import describe_failure

OURS = {"CHECKPOINT_DAMAGED", "STORE_IN_USE", "STORE_AHEAD", "STORE_BEHIND", "STATE_OF_ANOTHER_QUERY"}
"""The errors by which a damaged checkpoint may be refused."""


@pytest.mark.slow
def test_a_query_with_a_damaged_checkpoint_is_exact_or_refused_by_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    found = Counter[str]()
    for seed, kind, done, outcome in run_cases(spark, tmp_path, range(len(KINDS) * 3)):
        name = re.search(r"\[([A-Z_]+)\]", outcome)
        assert outcome == EXACT or (name and name[1] in OURS), (seed, kind, done, outcome)
        found[EXACT if name is None else name[1]] += 1
    assert found[EXACT]
    assert found["CHECKPOINT_DAMAGED"]


@pytest.mark.slow
def test_a_full_disk_of_the_jvm_is_named_and_nothing_is_lost(tmp_path: Path) -> None:
    write_streams(tmp_path, 6, 40)
    job = Job(str(tmp_path))
    process = job.start()
    chance, is_full = random.Random(1), False
    while process.poll() is None and not is_full:
        if (job.checkpoint / "commits" / "1").exists():
            java = [one for one in psutil.Process(process.pid).children(recursive=True) if is_jvm(one)]
            is_full = any(limit_files(one, chance.randrange(50)) for one in java)
        time.sleep(0.05)
    assert process.wait(600) == 1
    assert re.search(
        r"\[DISK_FULL\] Spark writes .*the disk is full \(File too large\).*continues", job.output
    )
    add_empty_files(tmp_path)
    job.finish()
    assert read_committed(job.sink) == oracle(tmp_path)


def start_slow_query(spark: SparkSession, folder: Path) -> Any:
    """Start a query whose source runs in a process of Python, with an epoch each second."""
    write_streams(folder, 3, 20)
    schema = "id BIGINT, x BIGINT, y BIGINT, ts TIMESTAMP"
    streams = {
        alias: spark.readStream.schema(schema).parquet(str(folder / alias)).withWatermark("ts", "3 seconds")
        for alias in "ab"
    }
    pairs = th.join(streams, on="a.x = b.x", within="20 seconds")
    store = th.ParquetStore(str(folder / "store"))
    return th.write(pairs, store, checkpoint=folder / "checkpoint", trigger="1 second")


@pytest.mark.slow
def test_a_killed_source_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """Its reason was empty."""
    query = start_slow_query(spark, tmp_path)
    query.processAllAvailable()
    for process in psutil.Process().children(recursive=True):
        if any("streaming_source_runner" in word for word in process.cmdline()):
            process.kill()
    with pytest.raises(Exception, match="STREAM_FAILED") as error:
        query.awaitTermination(60)
    assert "[SOURCE_ENDED]" in str(describe_failure(error.value))
