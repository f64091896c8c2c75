"""Streams join tables: Spark's own join adds each table, and the answer is that of the batch cross join."""

import re
from collections import Counter
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.streams import outcome, replay
from tests.support.truth import configured
from thetastream.spark.session.failure import describe_failure, unwrap_error

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


@pytest.mark.slow
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


HOW = "a.x = t.y AND a.id > 5"
ANSWERS = [
    ({"a": "left"}, HOW),
    ({"a": "left"}, "a.x <= t.y AND t.n < 3"),
    ({"t": "right"}, HOW),
    ({"a": "semi"}, "a.x < t.y"),
    ({"a": "anti"}, "a.x <= t.y - 2"),
]


def test_each_tuple_of_a_stream_is_answered_from_a_table(
    spark: SparkSession, frame: DataFrame, table: DataFrame, tmp_path: Path
) -> None:
    s = replay(frame, [range(20), range(20, N)], tmp_path).withWatermark("ts", "10 minutes")
    streamed, wanted = [], []
    for n, (kind, on) in enumerate(ANSWERS):
        ((first, how),) = kind.items()
        inputs = {"a": s, "t": table} if first == "a" else {"t": table, "a": s}
        other = "t.n" if how in ("left", "right") else "NULL"
        columns = [f"{n} AS case", "a.id", f"CAST({other} AS BIGINT) AS n"]
        streamed.append(th.join(inputs, on=on, how=how).selectExpr(*columns, "result_time"))
        own = {alias: whole.alias(alias) for alias, whole in {"a": frame, "t": table}.items()}
        left, right = (own[alias] for alias in inputs)
        wanted.append(left.join(right, F.expr(on), how).selectExpr(*columns, "a.ts"))
    found = outcome(reduce(DataFrame.union, streamed), ["*"], tmp_path).rows
    assert found == Counter(tuple(row) for part in wanted for row in part.collect())
    assert {row[0] for row in found} == set(range(len(ANSWERS)))
    statement = "SELECT a.id FROM a WHERE x NOT IN (SELECT y FROM t WHERE n < 4)"
    rows = outcome(th.sql(spark, statement, {"a": s, "t": table}), ["id"], tmp_path).rows
    own_rows = frame.where("x NOT IN (0, 2, 4, 6)").select("id").collect()
    assert rows == Counter(map(tuple, own_rows))


def test_a_row_of_joins_of_one_stream_with_tables(
    spark: SparkSession, frame: DataFrame, table: DataFrame, tmp_path: Path
) -> None:
    s = replay(frame, [range(20), range(20, N)], tmp_path).withWatermark("ts", "10 minutes")
    text = (
        "SELECT a.id, t.n, u.n AS m FROM a LEFT JOIN t ON a.x = t.y "
        "LEFT JOIN u ON t.n < u.n AND a.id > 10 ANTI JOIN v ON a.x = v.n"
    )
    tables = dict.fromkeys("tuv", table)
    found = outcome(th.sql(spark, text, {"a": s, **tables}), ["id", "n", "m"], tmp_path).rows
    for alias, whole in {"a": frame, **tables}.items():
        whole.createOrReplaceTempView(alias)
    assert found == Counter(map(tuple, spark.sql(text).collect()))
    assert {tuple(value is None for value in row[1:]) for row in found} >= {(True, True), (False, False)}
    for alias in ("a", *tables):
        spark.catalog.dropTempView(alias)
    with pytest.raises(th.QueryError, match=r"MIXED_INPUTS.*leave it out"):
        th.sql(spark, f"{text} WITHIN 1 minute", {"a": s, **tables})
    with pytest.raises(th.QueryError, match=r"HOW.*FROM \(SELECT"):
        th.sql(spark, f"{text} WITHIN 1 minute", {"a": s, **tables, "t": s})


def test_answers_that_a_table_cannot_have_are_refused(
    frame: DataFrame, table: DataFrame, tmp_path: Path
) -> None:
    s = replay(frame, [range(4)], tmp_path).withWatermark("ts", "1 minute")
    one, swapped = {"a": s, "t": table}, {"t": table, "a": s}
    refused: list[tuple[Any, Any, Any, str]] = [
        (
            one,
            "full",
            HOW,
            r"TABLE_PRESERVED\] .*each row of the table 't'.*how='left' answers each tuple of 'a'",
        ),
        (swapped, "left", HOW, r"TABLE_PRESERVED\] .*how='right' answers each tuple of 'a'"),
        (swapped, "anti", HOW, r"TABLE_PRESERVED\] .*names the stream first"),
        (swapped, th.Nearest(1, by="a.x - t.y"), HOW, r"TABLE_PRESERVED\] .*each row of the table 't'"),
        (one, "left", [HOW, same_parity], r"HOW\] .*calls no Python predicate .same_parity."),
        (
            {**one, "u": table},
            "left",
            f"{HOW} AND t.n = u.n",
            r"HOW\] .*there are 3; join the stream with one table",
        ),
    ]
    for inputs, how, on, words in refused:
        with pytest.raises(th.QueryError, match=rf"\[{words}"):
            th.join(inputs, on=on, how=how)


def test_a_rewritten_folder_is_an_error_that_says_how_to_continue(
    spark: SparkSession, frame: DataFrame, table: DataFrame, tmp_path: Path
) -> None:
    folder = str(tmp_path / "table")
    table.write.parquet(folder)
    s = replay(frame, [range(4)], tmp_path).withWatermark("ts", "1 minute")
    joined = th.join({"a": s, "t": spark.read.parquet(folder)}, on="a.x = t.y", how="left")
    table.write.mode("overwrite").parquet(folder)
    with pytest.raises(StreamingQueryException) as error:
        outcome(joined, ["a.id"], tmp_path)
    said = describe_failure(error.value)
    assert said is not None
    assert re.search(
        r"QueryError: \[FILE_GONE\] the query reads the file file:\S*/table/part-\S+, which", said
    )
    assert unwrap_error(error.value) is not None
    again = th.join({"a": s, "t": spark.read.parquet(folder)}, on="a.x = t.y", how="left")
    assert outcome(again, ["a.id"], tmp_path).rows.total() >= 4


def test_explain_says_how_tables_are_joined(frame: DataFrame, table: DataFrame, tmp_path: Path) -> None:
    s = replay(frame, [range(4)], tmp_path).withWatermark("ts", "1 minute")
    text = th.plan({"a": s, "t": table}, on="a.x = t.y AND a.id > 5").explain()
    assert "table t: 3 columns" in text
    assert "before   a: a.id > 5" in text
    assert "t: a.x = t.y   (Spark's own join, by its equality)" in text
    streams = {"a": s, "b": s, "t": table}
    text = th.plan(streams, on="a.x = b.x AND (b.x = 1 OR t.y = 2)", within="1 minute").explain()
    assert "(Spark's own join, each row with the whole table, because no inequality" in text
    text = th.plan(streams, on="a.x = b.x AND b.x < t.y", within="1 minute", model="spark").explain()
    assert '(Spark\'s own join, each row with the whole table, because model="spark" asks for it)' in text
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
    ignored = {"index": "hash", "late": "late", "max_units": 4}
    for settings in (
        *({"within": "1 minute"}, {"model": th.Biclique(1)}, {"statistics": th.Statistics()}),
        *({name: value} for name, value in ignored.items()),
    ):
        with pytest.raises(th.QueryError, match=r"MIXED_INPUTS.*needs two streams"):
            th.join(one, on="a.x = t.y", **settings)  # type: ignore[arg-type]
    within = dict.fromkeys("abt", "1 minute")
    with pytest.raises(th.QueryError, match=r"MIXED_INPUTS.*names t"):
        th.join(two, on="a.x = t.y AND a.x = b.x", within=within)
    with pytest.raises(th.QueryError, match=r"\[ORDER\].*t; leave order out"):
        th.join(two, on="a.x = t.y AND a.x = b.x", within="1 minute", order="strict")
    with pytest.raises(th.QueryError, match=r"\[ORDER\].*t; leave punctuations out"):
        th.join(one, on="a.x = t.y", punctuations=True)
    with pytest.raises(th.errors.InvalidQuery, match=r"INVALID_DURATION") as refused:
        th.join(two, on="a.x = t.z", within="1 parsec")
    assert {problem.condition for problem in refused.value.problems} == {"UNKNOWN_COLUMN", "INVALID_DURATION"}
    with pytest.raises(th.QueryError, match="UNKNOWN_COLUMN"):
        th.join(one, on="a.x = t.z")
    with pytest.raises(th.QueryError, match=r"MIXED_INPUTS.*join tasks"):
        th.join_many(one, {"only": {"on": "a.x = t.y"}})
