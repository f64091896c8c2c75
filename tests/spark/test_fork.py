"""A condition that changes: a query begins with the stored tuples of another one."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from thetastream.core.errors import StoreError

SCHEMA = "id LONG, x INT, ts TIMESTAMP"


class Files:
    """Two streams of files, a few rows in an epoch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder

    def add(self, first: int) -> None:
        rows = self.spark.range(first, first + 10, 1, 1).selectExpr(
            "id", "CAST(id * 7 % 10 AS INT) AS x", "timestamp_seconds(1700000000 + id) AS ts"
        )
        for alias in "ab":
            rows.write.mode("append").parquet(str(self.folder / alias))

    def pairs(self, on: str) -> DataFrame:
        streams = {
            alias: self.spark.readStream.schema(SCHEMA).parquet(str(self.folder / alias)) for alias in "ab"
        }
        marked = {alias: stream.withWatermark("ts", "2 seconds") for alias, stream in streams.items()}
        pairs = th.join(marked, on=on, within="15 seconds", model=th.Biclique(2))
        return pairs.selectExpr("a.id AS a", "b.id AS b")

    def write(self, on: str, name: str, into: str | None = None) -> Counter[Any]:
        store = th.ParquetStore(str(self.folder / f"store-{into or name}"))
        checkpoint = self.folder / f"checkpoint-{name}"
        th.write(self.pairs(on), store, checkpoint=checkpoint, trigger="available now").awaitTermination()
        return Counter((row["a"], row["b"]) for row in store.read().to_pylist())


def expect(limit: int, first: int, n: int) -> Counter[Any]:
    """The pairs of the numbers below ``n`` of which one is at least ``first``."""
    x = [number * 7 % 10 for number in range(n)]
    return Counter(
        (a, b)
        for a in range(n)
        for b in range(n)
        if max(a, b) >= first and abs(a - b) <= 15 and abs(x[a] - x[b]) <= limit
    )


def test_a_new_condition_begins_with_the_stored_window(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, tmp_path)
    files.add(0)
    assert files.write("abs(a.x - b.x) <= 1", "1") == expect(1, 0, 10)
    th.fork(tmp_path / "checkpoint-1", tmp_path / "checkpoint-2")
    files.add(10)
    # The fork takes the place of the old query in its store, and the old query may not go on there.
    both = expect(1, 0, 10) + expect(3, 10, 20)
    assert files.write("abs(a.x - b.x) <= 3", "2", into="1") == both
    with pytest.raises(StoreError, match=r"\[STORE_IN_USE\] a fork has taken the place"):
        files.write("abs(a.x - b.x) <= 1", "1")


@pytest.mark.slow
def test_a_fork_may_begin_after_an_earlier_epoch(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, tmp_path)
    files.add(0)
    files.write("abs(a.x - b.x) <= 1", "1")
    first = max(int(path.name) for path in (tmp_path / "checkpoint-1/commits").glob("[0-9]*"))
    files.add(10)
    assert files.write("abs(a.x - b.x) <= 1", "1") == expect(1, 0, 20)
    th.fork(tmp_path / "checkpoint-1", tmp_path / "checkpoint-2", epoch=first)
    with pytest.raises(StoreError, match=r"\[STORE_AHEAD\] .*begins after epoch"):
        files.write("abs(a.x - b.x) <= 3", "2", into="1")
    assert files.write("abs(a.x - b.x) <= 3", "2") == expect(3, 10, 20)
    files.add(20)
    assert files.write("abs(a.x - b.x) <= 3", "2") == expect(3, 10, 30)


@pytest.mark.slow
def test_both_queries_go_on_and_an_interrupted_first_epoch_runs_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = Files(spark, tmp_path)
    files.add(0)
    files.write("abs(a.x - b.x) <= 1", "1")
    epoch = th.fork(tmp_path / "checkpoint-1", tmp_path / "checkpoint-2")
    # 1. The first epoch of the fork has no rows. A crash takes back its commit.
    assert not files.write("abs(a.x - b.x) <= 3", "2")
    commits = tmp_path / "checkpoint-2" / "commits"
    assert max(int(path.name) for path in commits.glob("[0-9]*")) == epoch + 1
    (commits / f"{epoch + 1}").unlink()
    files.add(10)
    assert files.write("abs(a.x - b.x) <= 3", "2") == expect(3, 10, 20)
    # 2. The old query goes on, and the new one continues from its own checkpoint.
    files.add(20)
    assert files.write("abs(a.x - b.x) <= 1", "1") == expect(1, 0, 30)
    assert files.write("abs(a.x - b.x) <= 3", "2") == expect(3, 10, 30)
    # 3. What is not stored is refused.
    th.fork(tmp_path / "checkpoint-2", tmp_path / "checkpoint-3")
    with pytest.raises(StreamingQueryException, match=r"\[FORK\].*the filters of stream 1 were none"):
        files.write("abs(a.x - b.x) <= 3 AND a.x > 5", "3")
