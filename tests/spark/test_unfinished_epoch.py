"""After a crash, ``th.checkpoints.finish_epoch`` ends an epoch that only Spark's file sink has committed."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from thetastream.app.job.run import run
from thetastream.app.job.spec import Job, SinkSpec, SourceSpec


class FileQuery:
    """A left join of two streams of numbers, a file in an epoch, that Spark's file sink writes."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.checkpoint, self.sink = folder / "checkpoint", folder / "sink"

    def add(self, first: int) -> None:
        """Write the next ten numbers to both streams, a second apart."""
        rows = self.spark.range(first, first + 10, 1, 1).selectExpr(
            "id", "timestamp_seconds(1700000000 + id) AS ts"
        )
        for alias in "ab":
            rows.write.mode("append").parquet(str(self.folder / alias))

    def pairs(self) -> DataFrame:
        streams = {
            alias: self.spark.readStream.schema("id LONG, ts TIMESTAMP")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.folder / alias))
            .withWatermark("ts", "0 seconds")
            for alias in "ab"
        }
        pairs = th.join(streams, on="b.id = a.id + 3 AND b.id % 2 = 0", within="5 seconds", how="left")
        return pairs.selectExpr("a.id", "b.id AS partner")

    def run(self) -> None:
        """Write the results of all files."""
        writer = self.pairs().writeStream.format("parquet").trigger(availableNow=True)
        writer.option("checkpointLocation", str(self.checkpoint)).start(str(self.sink)).awaitTermination()

    def forget_commit(self) -> int:
        """Remove the last commit of Spark, as if the driver had been killed before it; return its epoch."""
        epoch = max(int(path.name) for path in (self.checkpoint / "commits").glob("[0-9]*"))
        remove_entry(self.checkpoint / "commits", epoch)
        return epoch

    def read(self) -> Counter[tuple[int, int | None]]:
        return Counter(tuple(row) for row in self.spark.read.parquet(str(self.sink)).collect())


def remove_entry(log: Path, epoch: int) -> None:
    """Remove an entry of a log of Spark, and its checksum if it has one."""
    (log / f"{epoch}").unlink()
    (log / f".{epoch}.crc").unlink(missing_ok=True)


def expect(n: int) -> Counter[tuple[int, int | None]]:
    """The results of the numbers below ``n``. The watermark is n - 1: the filter of b stays behind it."""
    found: Counter[tuple[int, int | None]] = Counter((a, a + 3) for a in range(1, n - 3, 2))
    found.update((a, None) for a in range(0, n - 5, 2))
    return found


def test_a_query_continues_behind_an_epoch_that_only_its_file_sink_has_committed(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = FileQuery(spark, tmp_path)
    query.add(0)
    query.add(10)
    query.run()
    before = query.read()
    epoch = query.forget_commit()
    query.add(20)
    with pytest.raises(StreamingQueryException, match="CheckpointInfo length: 0"):
        query.run()
    assert th.checkpoints.finish_epoch(query.pairs(), query.checkpoint, query.sink)
    assert query.read() == before
    # The epoch after it has not begun, so its rows are not lost.
    assert not (query.checkpoint / "offsets" / str(epoch + 1)).exists()
    assert not th.checkpoints.finish_epoch(query.pairs(), query.checkpoint, query.sink)
    query.run()
    assert query.read() == expect(30)


@pytest.mark.slow
def test_a_job_continues_behind_such_an_epoch_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    query = FileQuery(spark, tmp_path)
    schema = "id LONG, ts TIMESTAMP"
    job = Job(
        "SELECT ONLINE a.id, b.id AS partner FROM a, b WHERE b.id = a.id + 3 WITHIN 5 seconds",
        str(query.checkpoint),
        tuple(SourceSpec(name, "parquet", str(tmp_path / name), schema, "ts") for name in "ab"),
        SinkSpec("parquet", str(query.sink)),
    )
    for first in (0, 10):
        query.add(first)
        run(spark, job, lambda figures: None, until_caught_up=True)
        query.forget_commit()
    run(spark, job, lambda figures: None, until_caught_up=True)
    assert query.read() == Counter((a, a + 3) for a in range(17))


@pytest.mark.parametrize(
    ("begun", "committed", "written"),
    [([], [], []), ([0], [], []), ([0, 1], [0, 1], [0, 1]), ([9, 10], [9], ["9.compact"])],
)
def test_there_is_nothing_to_finish(
    begun: list[int], committed: list[int], written: list[Any], tmp_path: Path, spark: SparkSession
) -> None:
    logs = {"checkpoint/offsets": begun, "checkpoint/commits": committed, "sink/_spark_metadata": written}
    for log, epochs in logs.items():
        (tmp_path / log).mkdir(parents=True)
        for epoch in epochs:
            (tmp_path / log / f"{epoch}").touch()
    assert not th.checkpoints.finish_epoch(spark.range(1), tmp_path / "checkpoint", tmp_path / "sink")
