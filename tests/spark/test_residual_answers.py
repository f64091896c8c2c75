"""Joins that answer each tuple by a condition of which Spark evaluates a part."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.answer_streams import EPOCHS, START, WITHIN_S, frames, streams
from tests.support.streams import outcome
from tests.support.truth import configured
from thetastream.app.job.document import read_job
from thetastream.app.job.run import run as run_job

INDEXED = "abs(a.x - b.x) <= 2 AND a.y > 1 AND b.y < 8"
RESIDUAL = "a.y + b.y > 9"
WITHIN = f"{WITHIN_S} seconds"
HOWS = ["left", "right", "full", "semi", "anti"]


@th.predicate(a=["y"], b=["y"])
def is_large(a: Any, b: Any) -> Any:
    """The same as ``RESIDUAL``, evaluated by the units."""
    return np.array(a.y) + np.array(b.y) > 9


@pytest.fixture(autouse=True)
def two_partitions(spark: SparkSession) -> Iterator[None]:
    with configured(spark, {"spark.sql.shuffle.partitions": "2"}):
        yield


CONDITIONS = [
    f"{INDEXED} AND {RESIDUAL}",
    "(a.x = b.x OR a.y = b.y) AND concat(a.tags[1], b.id) LIKE 't%1'",
    "coalesce(a.x, b.x) % 3 = b.y % 3 AND a.y > 4",
    "a.x = b.x AND struct(a.y) <> struct(b.y) AND cast(a.id AS STRING) < cast(b.id AS STRING)",
    "1000 / (a.y - b.y + 20) < 50",
]


@pytest.mark.parametrize("shift", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 5))])
def test_batch(spark: SparkSession, shift: int) -> None:
    """Each kind of join has another condition. One query has all of them, and another one those of Spark."""
    a, b = frames(spark)
    window = f"abs(unix_seconds(a.ts) - unix_seconds(b.ts)) <= {WITHIN_S}"
    ours, own = [], []
    for n, how in enumerate(HOWS):
        on = CONDITIONS[(n + shift) % len(CONDITIONS)]
        bid = F.lit(None) if how in ("semi", "anti") else F.col("b.id")
        columns = [F.lit(how), "a.id", bid.alias("bid")]
        ours.append(th.join({"a": a, "b": b}, on=on, within=WITHIN, how=how).select(*columns))
        own.append(a.alias("a").join(b.alias("b"), F.expr(f"({on}) AND {window}"), how).select(*columns))
    found, expected = (Counter(map(tuple, reduce(DataFrame.union, joins).collect())) for joins in (ours, own))
    assert found == expected
    assert len({how for how, *_ in found}) == len(HOWS)


NEAREST = th.Nearest(1, by="abs(a.y - b.y)", keep_unmatched=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [*HOWS, NEAREST],
    ids=repr,
)
def test_stream(spark: SparkSession, how: Any, tmp_path: Path) -> None:
    """Late tuples, undecided ones and result times are those of a join whose units evaluate all."""
    given = streams(spark, tmp_path)
    whole = th.join(given, on=[INDEXED, is_large], within=WITHIN, how=how)
    parts = th.join(given, on=f"{INDEXED} AND {RESIDUAL}", within=WITHIN, how=how)
    columns = ["a.id", *([] if how in ("semi", "anti") else [F.col("b.id").alias("bid")]), "result_time"]
    expected, found = (outcome(joined, columns, tmp_path) for joined in (whole, parts))
    assert found.rows == expected.rows
    assert found.rows


@pytest.mark.slow
def test_a_restart_and_a_window_behind_the_join(spark: SparkSession, tmp_path: Path) -> None:
    """Half of the files arrive before the query stops. Spark's windows behind it lose no row."""
    given = streams(spark, tmp_path)
    later = sorted(path for path in tmp_path.glob("stream-*/*.parquet") if int(path.stem[-4:]) >= EPOCHS // 2)
    joined = th.join(given, on=f"{INDEXED} AND {RESIDUAL}", within=WITHIN, how="left")
    counted = joined.groupBy(F.window("result_time", "10 seconds")).count()

    def run(checkpoint: str) -> Counter[Any]:
        rows: list[Any] = []
        query = (
            counted.select("window.end", "count")
            .writeStream.foreachBatch(lambda batch, _: rows.extend(map(tuple, batch.collect())))
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return Counter(rows)

    for path in later:
        path.rename(path.with_name(f"_{path.name}"))
    before = run("halves")
    for path in later:
        path.with_name(f"_{path.name}").rename(path)
    after = run("halves")
    assert before
    whole = th.join(given, on=[INDEXED, is_large], within=WITHIN, how="left")
    rows = outcome(whole, ["result_time"], tmp_path)
    found = before + after
    closed: Counter[Any] = Counter()
    last = max(end for end, _ in found)
    for (time,), n in rows.rows.items():
        if time is not None:
            end = START + timedelta(seconds=((time - START) // timedelta(seconds=10) + 1) * 10)
            closed[end] += n
    assert found == Counter((end, n) for end, n in closed.items() if end <= last)


STATEMENTS = [
    "SELECT a.id, b.id AS bid FROM a LEFT JOIN b ON a.x + b.x > 30 AND a.y < b.y{}",
    "SELECT a.id, NULL AS bid FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE a.x < b.x AND a.y + b.y > 14{})",
]


def test_sql(spark: SparkSession) -> None:
    for alias, frame in zip("ab", frames(spark), strict=True):
        frame.drop("tags").createOrReplaceTempView(alias)
    window = f" AND abs(unix_seconds(a.ts) - unix_seconds(b.ts)) <= {WITHIN_S}"
    ours = [th.sql(spark, text.format("") + f" WITHIN {WITHIN}") for text in STATEMENTS]
    own = [spark.sql(text.format(window)) for text in STATEMENTS]
    found, expected = (Counter(map(tuple, reduce(DataFrame.union, each).collect())) for each in (ours, own))
    assert found == expected


def test_explain_says_where_tuples_are_decided_and_what_it_costs(spark: SparkSession) -> None:
    a, b = frames(spark)
    cost = "  second exchange: 113 bytes for each tuple of a, and for each candidate pair"
    for on, is_told in ((RESIDUAL, True), (INDEXED, False)):
        text = th.plan({"a": a, "b": b}, on=on, within=WITHIN, how="anti").explain()
        assert ("decides   second units" in text) == is_told
        assert (cost in text) == is_told


JOB = """
sql = "SELECT a.id, b.id AS bid FROM a LEFT JOIN b ON a.x = b.x AND a.y + b.y > 9 WITHIN 20 seconds"
checkpoint = "checkpoint"
[sources.a]
format = "csv"
path = "a"
schema = "id BIGINT, ts TIMESTAMP, x INT, y INT"
event_time = "ts"
[sources.b]
format = "csv"
path = "b"
schema = "id BIGINT, ts TIMESTAMP, x INT, y INT"
event_time = "ts"
[sink]
format = "parquet"
path = "rows"
"""


@pytest.mark.slow
def test_a_job_file(spark: SparkSession, tmp_path: Path) -> None:
    """The matches that a job reports are those of its first units, as of every join with a residual."""
    lines = {
        "a": ["1,2024-03-10T00:00:01,5,4", "2,2024-03-10T00:00:02,5,9", "3,2024-03-10T00:10:00,1,1"],
        "b": ["7,2024-03-10T00:00:03,5,3", "8,2024-03-10T00:10:00,2,2"],
    }
    for alias, rows in lines.items():
        (tmp_path / alias).mkdir()
        (tmp_path / alias / "0.csv").write_text("\n".join(rows))
    (tmp_path / "job.toml").write_text(JOB)
    epochs: list[dict[str, Any]] = []
    measured: list[th.Statistics] = []
    kept = spark.conf.get("spark.sql.streaming.numRecentProgressUpdates")
    with configured(spark, {"spark.sql.streaming.numRecentProgressUpdates": kept}):
        run_job(
            spark,
            read_job(tmp_path / "job.toml"),
            epochs.append,
            until_caught_up=True,
            measure=lambda query: measured.append(th.statistics(query)),
        )
    found = Counter(map(tuple, spark.read.parquet(str(tmp_path / "rows")).collect()))
    assert found == Counter([(1, None), (2, 7)])
    assert sum(epoch.get("matched", 0) for epoch in epochs) == 2
    assert measured[0].candidates_per_tuple
    assert next(epoch["kinds"] for epoch in epochs if "kinds" in epoch) == ["left"]
