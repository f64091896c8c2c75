"""Streams join tables: Spark's own join adds each table, and the answer is that of the batch cross join."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.streams import outcome, replay
from tests.support.truth import configured

N = 40


@th.predicate(a=["x"], t=["y"])
def same_parity(a: Any, t: Any) -> Any:
    return np.asarray(a.x) % 2 == np.asarray(t.y) % 2


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    rows = spark.range(N).selectExpr(
        "id", "timestamp_seconds(1700000000 + id * 10) AS ts", "id * 7 % 11 AS x"
    )
    return rows.localCheckpoint()


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> DataFrame:
    return (
        spark.range(6).selectExpr("id AS n", "id * 2 AS y", "timestamp_seconds(id) AS ts").localCheckpoint()
    )


def gather(**frames: DataFrame) -> DataFrame:
    structs = [frame.select(F.struct("*").alias(alias)) for alias, frame in frames.items()]
    rows = structs[0]
    for one in structs[1:]:
        rows = rows.crossJoin(one)
    return rows


NEAR = "abs(unix_micros(a.ts) - unix_micros(b.ts)) <= 30000000"


def test_streams_with_tables(spark: SparkSession, frame: DataFrame, table: DataFrame, tmp_path: Path) -> None:
    s = replay(frame, [range(20), range(20, N)], tmp_path).withWatermark("ts", "10 minutes")
    one = {"a": s, "t": table}
    two = {"t": table, "a": s, "u": table, "b": s}
    cases = [
        (th.join(one, on="a.x <= t.y AND a.id > 5"), "a.x <= t.y AND a.id > 5", ""),
        (th.join(one, on=["a.x = y", same_parity]), "a.x = t.y AND a.x % 2 = t.y % 2", ""),
        (
            th.join(two, on="a.x < b.x AND a.x = t.y AND b.x > u.y AND t.n < u.n", within="30 seconds"),
            f"a.x < b.x AND a.x = t.y AND b.x > u.y AND t.n < u.n AND {NEAR}",
            "b",
        ),
    ]
    assert cases[2][0].columns == ["t", "a", "u", "b", "result_time"]
    streamed, wanted = [], []
    for n, (joined, text, other) in enumerate(cases):
        ids = ["a.id", "t.n", "b.id * 100 + u.n" if other else "0L"]
        time = "greatest(a.ts, b.ts)" if other else "a.ts"
        whole = {"a": frame, "t": table, **({"b": frame, "u": table} if other else {})}
        streamed.append(joined.selectExpr(f"{n} AS case", *ids, "result_time"))
        wanted.append(gather(**whole).where(text).selectExpr(f"{n} AS case", *ids, time))
    with configured(spark, {"spark.sql.shuffle.partitions": "1"}):
        found = outcome(streamed[0].union(streamed[1]).union(streamed[2]), ["*"], tmp_path)
    truth = Counter(tuple(row) for part in wanted for row in part.collect())
    assert found.rows == truth
    assert all(sum(row[0] == n for row in truth) > 20 for n in range(3))


def test_a_window_behind_a_stream_with_a_table(frame: DataFrame, table: DataFrame, tmp_path: Path) -> None:
    s = replay(frame, [range(20), range(20, N)], tmp_path).withWatermark("ts", "0 seconds")
    joined = th.join({"a": s, "t": table}, on="a.x <= t.y")
    counts = joined.groupBy(F.window("result_time", "1 minute")).count().select("window.end", "count")
    found = outcome(counts, ["*"], tmp_path)
    whole = gather(a=frame, t=table).where("a.x <= t.y").groupBy(F.window("a.ts", "1 minute")).count()
    end = max(found.watermarks_ms.values())
    settled = [
        row for row in whole.select("window.end", "count").collect() if row[0].timestamp() * 1000 <= end
    ]
    assert found.rows == Counter(map(tuple, settled))
    assert len(settled) > 3


def test_explain_says_how_tables_are_joined(frame: DataFrame, table: DataFrame, tmp_path: Path) -> None:
    s = replay(frame, [range(4)], tmp_path).withWatermark("ts", "1 minute")
    text = th.plan({"a": s, "t": table}, on="a.x = t.y AND a.id > 5").explain()
    assert "table t: 3 columns" in text
    assert "before   a: a.id > 5" in text
    assert "t: a.x = t.y   (Spark's own join, by its equality)" in text
    streams = {"a": s, "b": s, "t": table}
    text = th.plan(streams, on="a.x = b.x AND b.x < t.y", within="1 minute").explain()
    assert "t: b.x < t.y   (Spark's own join, each row with the whole table" in text
    assert "== Physical ==" in text


def test_statements_may_name_tables(
    spark: SparkSession, frame: DataFrame, table: DataFrame, tmp_path: Path
) -> None:
    s = replay(frame, [range(4)], tmp_path).withWatermark("ts", "1 minute")
    rows = th.sql(spark, "SELECT ONLINE a.id, n, result_time FROM a, t WHERE x = y", {"a": s, "t": table})
    assert rows.isStreaming
    assert rows.columns == ["id", "n", "result_time"]


def test_what_tables_refuse(frame: DataFrame, table: DataFrame, tmp_path: Path) -> None:
    s = replay(frame, [range(4)], tmp_path).withWatermark("ts", "1 minute")
    one, two = {"a": s, "t": table}, {"a": s, "b": s, "t": table}
    for settings in ({"within": "1 minute"}, {"model": th.Biclique(1)}, {"index": "hash"}):
        with pytest.raises(th.QueryError, match=r"MIXED_INPUTS.*needs two streams"):
            th.join(one, on="a.x = t.y", **settings)  # type: ignore[arg-type]
    within = dict.fromkeys("abt", "1 minute")
    with pytest.raises(th.QueryError, match=r"MIXED_INPUTS.*names t"):
        th.join(two, on="a.x = t.y AND a.x = b.x", within=within)
    with pytest.raises(th.QueryError, match=r"\[ORDER\].*t; leave order out"):
        th.join(two, on="a.x = t.y AND a.x = b.x", within="1 minute", order="strict")
    with pytest.raises(th.QueryError, match="UNKNOWN_COLUMN"):
        th.join(one, on="a.x = t.z")
    with pytest.raises(th.QueryError, match=r"MIXED_INPUTS.*join tasks"):
        th.join_many(one, {"only": {"on": "a.x = t.y"}})
