"""Threads of one program plan, run and stop joins of one session at the same time."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.streams import replay
from thetastream.spark.observe import listener

JOINS, THREADS, ROWS = 16, 8, 40


@pytest.mark.slow
def test_16_joins_from_8_threads(spark: SparkSession, tmp_path: Path) -> None:
    """The session is new, so that all threads are the first to register what a join needs. Every second join
    reads streams; Spark starts a Python process for each of these, which is most of the time of this test."""
    session = th.configure(spark.newSession(), partitions=1)
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", False)
    frame = session.range(ROWS).selectExpr("id", "id % 7 AS k", "timestamp_seconds(1700000000 + id) AS ts")
    stream = replay(frame, [range(ROWS)], tmp_path).withWatermark("ts", "1 minute")
    conditions = ["a.k = b.k", "a.id <= b.id AND a.k > b.k", "abs(a.id - b.id) <= 2"]
    models = [th.Biclique(1), th.Chain(1), th.Split(1), None]

    def run(number: int) -> tuple[int, Counter[tuple[int, ...]]]:
        is_stream, on = number % 2 == 0, conditions[number % 3]
        source = stream if is_stream else frame
        planned = th.plan(
            {"a": source, "b": source}, on, "1 hour" if is_stream else None, models[number // 2 % 4]
        )
        assert on[:4] in planned.explain()
        pairs = planned.dataframe().selectExpr("a.id AS a", "b.id AS b")
        if not is_stream:
            return number, Counter(map(tuple, pairs.collect()))
        path = str(tmp_path / f"out-{number}")
        writer = pairs.writeStream.option("checkpointLocation", str(tmp_path / f"checkpoint-{number}"))
        query = writer.trigger(availableNow=True).start(path, format="parquet")
        query.awaitTermination()
        rows = Counter(map(tuple, session.read.parquet(path).collect()))
        assert sum(entry["matched"] for entry in th.metrics(query)) == sum(rows.values()), number
        return number, rows

    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(run, range(JOINS)))
    a, b = frame.alias("a"), frame.alias("b")
    answers = [
        Counter(map(tuple, a.join(b, on=F.expr(on)).select("a.id", "b.id").collect())) for on in conditions
    ]
    for number, rows in found:
        assert rows == answers[number % 3], number
    assert sum(known is session for known in listener._LISTENERS) == 1
