"""The end of a bounded input: every row is decided, exactly once, and later rows are refused by name."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import thetastream as th
from tests.support.truth import configured
from thetastream.app.job.document import read_job
from thetastream.app.job.run import run as run_job
from thetastream.spark.end_of_input import end_input

PROGRESS = "spark.sql.streaming.numRecentProgressUpdates"
SCHEMA = "id LONG, ts TIMESTAMP, x INT"
Build = Callable[[DataFrame, DataFrame], DataFrame]


class Bounded:
    """Two streams of files, the same rows as batches, and a query over them."""

    def __init__(self, spark: SparkSession, folder: Path, build: Build) -> None:
        self.spark, self.folder, self.build = spark, folder, build
        self.checkpoint = folder / "checkpoint"

    def add(self, alias: str, first: int, n: int = 10) -> None:
        """Write ``n`` rows, a second apart."""
        rows = self.spark.range(first, first + n, 1, 1)
        rows = rows.selectExpr("id", "timestamp_seconds(1700000000 + id) AS ts", "CAST(id % 3 AS INT) AS x")
        rows.write.mode("append").parquet(str(self.folder / alias))

    def read(self, alias: str) -> DataFrame:
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder / alias)).withWatermark("ts", "2 seconds")

    def writer(self) -> DataStreamWriter:
        results = self.build(self.read("a"), self.read("b"))
        writer = results.writeStream.format("parquet").option("path", str(self.folder / "out"))
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)

    def finish(self) -> Any:
        return th.finish(self.writer().start, self.checkpoint)

    def results(self) -> Counter[Any]:
        return Counter(map(tuple, self.spark.read.parquet(str(self.folder / "out")).collect()))

    def expected(self) -> Counter[Any]:
        a, b = (self.spark.read.schema(SCHEMA).parquet(str(self.folder / alias)) for alias in "ab")
        return Counter(map(tuple, self.build(a, b).collect()))


def join_left(a: DataFrame, b: DataFrame) -> DataFrame:
    """Each row of a with partners three seconds later, or alone."""
    pairs = th.join(
        {"a": a, "b": b}, on="b.id = a.id + 3 AND b.x > 0 AND a.x < 2", within="5 seconds", how="left"
    )
    return pairs.selectExpr("a.id AS a", "b.id AS b", "result_time")


def test_a_query_that_has_read_nothing_has_no_end(spark: SparkSession, tmp_path: Path) -> None:
    """Its units never ran, so they could not refuse later rows, and would decide the first ones at once."""
    query = Bounded(spark, tmp_path, join_left)
    for alias in "ab":
        (tmp_path / alias).mkdir()
    query.finish()
    assert not end_input(query.checkpoint)
    query.add("a", 0)
    query.writer().start().awaitTermination()
    query.add("b", 0)
    query.finish()
    assert query.results() == query.expected()


def test_every_row_is_decided_and_later_rows_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    query = Bounded(spark, tmp_path, join_left)
    for alias in "ab":
        query.add(alias, 0)
    query.finish()
    assert query.results() == query.expected()
    # The second call decides nothing again, and refuses the rows that come too late.
    query.add("b", 20)
    with pytest.raises(StreamingQueryException, match=r"\[INPUT_ENDED\].*of b"):
        query.finish()
    assert not end_input(query.checkpoint)


def group_nearest(a: DataFrame, b: DataFrame) -> DataFrame:
    """Count the nearest partners by windows behind the join."""
    found = th.join({"a": a, "b": b}, on="a.x = b.x", within="4 seconds", how=th.Nearest(1, by="b.id - a.id"))
    counted = found.selectExpr("window(result_time, '10 seconds') AS time", "a.id").groupBy("time").count()
    return counted.selectExpr("time.start", "count")


def join_twice(a: DataFrame, b: DataFrame) -> DataFrame:
    """A left join, and a left join of its rows."""
    streams = {"a": a, "b": b}
    found = th.sql(
        a.sparkSession,
        "SELECT a.id AS a, b.id AS b, c.id AS c FROM a LEFT JOIN b ON b.id = a.id + 3 AND b.x > 0 "
        "LEFT JOIN b AS c ON c.id = a.id + 1 AND c.x = 1 WITHIN 5 seconds",
        streams=streams,
    )
    return found


def join_residual(a: DataFrame, b: DataFrame) -> DataFrame:
    """An anti join whose condition only Spark can evaluate."""
    return th.join(
        {"a": a, "b": b}, on="sha1(concat(a.id, b.id)) LIKE '%7%'", within="3 seconds", how="anti"
    ).selectExpr("a.id")


def join_nearest(a: DataFrame, b: DataFrame) -> DataFrame:
    """The nearest partner of each row, which is earlier by a gap, or the row alone."""
    on = "a.x = b.x AND b.id % 4 > 1 AND b.ts <= a.ts - INTERVAL 3 SECONDS"
    nearest = th.Nearest(1, by="a.id - b.id", keep_unmatched=True)
    return th.join({"a": a, "b": b}, on=on, within="4 seconds", how=nearest).selectExpr("a.id", "b.id AS b")


@pytest.mark.slow
@pytest.mark.parametrize("build", [group_nearest, join_twice, join_residual, join_nearest])
@pytest.mark.parametrize("is_killed", [False, True])
def test_all_that_is_behind_a_join_ends_too(
    build: Build, is_killed: bool, spark: SparkSession, tmp_path: Path
) -> None:
    query = Bounded(spark, tmp_path, build)
    for first in (0, 10):
        for alias in "ab":
            query.add(alias, first)
    if is_killed:
        # The program ended behind the entry of the last epoch, and calls ``finish`` again.
        query.writer().start().awaitTermination()
        assert end_input(query.checkpoint)
    query.finish()
    assert query.results() == query.expected()


JOB = """
finish = true
checkpoint = "checkpoint"
sql = "SELECT a.id AS a, b.id AS b FROM a LEFT JOIN b ON b.id = a.id + 3 AND b.x > 0 WITHIN 5 seconds"
[sources.a]
format = "parquet"
path = "a"
schema = "id LONG, ts TIMESTAMP, x INT"
event_time = "ts"
[sources.b]
format = "parquet"
path = "b"
schema = "id LONG, ts TIMESTAMP, x INT"
event_time = "ts"
[sink]
store = "parquet"
path = "store"
"""


@pytest.mark.slow
def test_a_job_with_finish(spark: SparkSession, tmp_path: Path) -> None:
    def build(a: DataFrame, b: DataFrame) -> DataFrame:
        on = "b.id = a.id + 3 AND b.x > 0"
        return th.join({"a": a, "b": b}, on=on, within="5 seconds", how="left").selectExpr("a.id", "b.id")

    query = Bounded(spark, tmp_path, build)
    for alias in "ab":
        query.add(alias, 0)
    (tmp_path / "job.toml").write_text(JOB)
    epochs: list[dict[str, Any]] = []
    for _ in range(2):
        with configured(spark, {PROGRESS: spark.conf.get(PROGRESS)}):
            run_job(spark, read_job(tmp_path / "job.toml"), epochs.append)
        rows = th.ParquetStore(str(tmp_path / "store")).read().select(["a", "b"]).to_pylist()
        assert Counter((row["a"], row["b"]) for row in rows) == query.expected()
    numbers = [epoch["epoch"] for epoch in epochs]
    assert len(numbers) == len(set(numbers))
