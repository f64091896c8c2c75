"""Tuples at 20 seconds of event time from one another, in slight disorder, as a batch and as a stream."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.support.streams import replay

DELAY = "70 seconds"
"""The delay of the watermark. It is longer than the disorder, so that no tuple is late."""


def make_ticks(spark: SparkSession, n: int) -> DataFrame:
    """Make ``n`` tuples with the columns id, t and k, of which k has four values."""
    rows = spark.range(n).selectExpr(
        "id",
        "timestamp_seconds(1700000000 + id * 20 + CAST(hash(id) % 30 AS INT)) AS t",
        "CAST(id * 7 % 4 AS INT) AS k",
    )
    return rows.localCheckpoint()


def stream_ticks(ticks: DataFrame, folder: Path, n: int, epoch: int) -> DataFrame:
    """Stream ``n`` tuples in the order of their ids, ``epoch`` of them in each epoch."""
    epochs = [range(start, min(start + epoch, n)) for start in range(0, n, epoch)]
    return replay(ticks, epochs, folder).withWatermark("t", DELAY)
