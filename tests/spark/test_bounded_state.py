"""The state is as large as the window, no matter how long the query runs."""

from pathlib import Path
from statistics import median

import pytest
from pyspark.sql import SparkSession

import thetastream as th
from tests.support import faults
from tests.support.faults import FILE_S, Job, find_segments

WARM_UP = 5
"""Number of epochs until the window is full and its first periods are archived."""


def run(spark: SparkSession, folder: Path, windows: int) -> None:
    """Run a query over a stream of ``windows`` windows, with one window per file and epoch."""
    faults.write_streams(folder, files=windows, rows=200)
    job = Job(str(folder), cache_folder=str(folder / "cache"), within_s=FILE_S)
    query = job.write(job.pairs(spark))
    query.awaitTermination()
    assert faults.read_committed(job.sink) == faults.oracle(folder, FILE_S)

    steady = [epoch for epoch in th.metrics(query) if epoch["stored"]][WARM_UP:]
    assert len(steady) == windows - WARM_UP
    early, late = steady[: len(steady) // 2], steady[len(steady) // 2 :]
    for counter in ("state_bytes", "mlv_bytes", "segments"):
        first, last = ([epoch[counter] for epoch in half] for half in (early, late))
        print(
            f"{counter}: median {median(first):.0f} -> {median(last):.0f}, most {max(first)} -> {max(last)}"
        )
        assert median(last) <= 1.1 * median(first)
        assert max(last) <= 1.2 * max(first)
    # Spark's state store and the cache on disk contain only what the manifest names.
    progress = [p for p in query.recentProgress if p["numInputRows"]]
    rows = [p["stateOperators"][0]["numRowsTotal"] for p in progress][WARM_UP:]
    assert max(rows[len(rows) // 2 :]) <= 1.2 * max(rows[: len(rows) // 2])
    last_epoch = th.metrics(query)[-1]
    assert len(find_segments(folder / "cache")) <= max(e["segments"] for e in [*steady, last_epoch])
    times = [p["durationMs"]["triggerExecution"] for p in progress][WARM_UP:]
    halves = times[: len(times) // 2], times[len(times) // 2 :]
    print(f"epoch: median {median(halves[0]):.0f} ms -> {median(halves[1]):.0f} ms")


@pytest.mark.slow
def test_eleven_windows(spark: SparkSession, tmp_path: Path) -> None:
    run(spark, tmp_path, 11)


@pytest.mark.slow
def test_fifty_windows(spark: SparkSession, tmp_path: Path) -> None:
    run(spark, tmp_path, 50)
