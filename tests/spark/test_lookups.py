"""A stream is looked up in an index of a table, and the answer is that of Spark's own join."""

import shutil
from collections import Counter
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.streams import outcome, replay
from tests.support.truth import configured

N = 60
HOWS = ["inner", "left", "semi", "anti"]
CONDITIONS = [
    "a.x >= t.low AND a.x < t.high",
    "a.f <= t.f AND a.x = t.low",
    "a.ts BETWEEN t.since AND t.since + INTERVAL 30 SECONDS AND a.x > 3",
    "a.name < t.name AND t.low > 2",
    "a.d BETWEEN t.d - 1.5 AND t.d AND coalesce(a.name, t.name) <> 'n3'",
    "a.x <=> t.low AND a.f > t.f",
]


@th.predicate(a=["x"], t=["low"])
def same_parity(a: Any, t: Any) -> Any:
    return np.asarray(a.x) % 2 == np.asarray(t.low) % 2


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return (
        spark.range(N)
        .selectExpr(
            "id",
            "timestamp_seconds(1700000000 + id * 10) AS ts",
            "nullif(id * 7 % 11, 5) AS x",
            "CASE id % 7 WHEN 0 THEN NULL WHEN 1 THEN double('NaN') WHEN 2 THEN -0.0 ELSE id % 5 END AS f",
            "concat('n', id % 6) AS name",
            "cast(id AS DECIMAL(20, 3)) AS d",
        )
        .localCheckpoint()
    )


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> DataFrame:
    return (
        spark.range(25)
        .selectExpr(
            "id AS n",
            "nullif(id % 9, 4) AS low",
            "id % 9 + id % 4 - 1 AS high",
            "CASE id % 5 WHEN 0 THEN NULL WHEN 1 THEN double('NaN') ELSE id % 3 END AS f",
            "timestamp_seconds(1700000000 + id * 25) AS since",
            "concat('n', id % 4) AS name",
            "cast(id * 2 AS DECIMAL(18, 2)) AS d",
            "array(id, id + 1) AS nested",
        )
        .localCheckpoint()
    )


def list_columns(how: str) -> list[str]:
    pairs = ["t.n", "t.nested", "t.since"] if how in ("inner", "left") else []
    return ["a.id", "a.name", "a.f", *pairs, "result_time"]


@pytest.mark.sampled(10)
@pytest.mark.parametrize("first", range(0, len(CONDITIONS), 2))
@pytest.mark.parametrize("how", HOWS)
def test_lookups_answer_as_sparks_own_join(
    spark: SparkSession, frame: DataFrame, table: DataFrame, tmp_path: Path, how: str, first: int
) -> None:
    s = replay(frame, [range(25), range(25, N)], tmp_path).withWatermark("ts", "10 minutes")
    for order in ("at", "ta"):
        kind = how if order == "at" else {"left": "right"}.get(how, how)
        if order == "ta" and how in ("semi", "anti"):
            continue
        joined: dict[str | None, Any] = {}
        for model in (None, "spark"):
            parts = []
            for n in (first, first + 1):
                on = CONDITIONS[n]
                inputs = {alias: s if alias == "a" else table for alias in order}
                plan = th.plan(inputs, on, how=kind, model=model)
                is_looked_up = "by an index of the table" in plan.explain()
                assert is_looked_up == (model is None), on
                parts.append(plan.dataframe().selectExpr(f"{n} AS case", *list_columns(how)))
            every = parts[0]
            for part in parts[1:]:
                every = every.union(part)
            with configured(spark, {"spark.sql.shuffle.partitions": "2"}):
                joined[model] = outcome(every.selectExpr("*"), [F.expr("to_json(struct(*))")], tmp_path).rows
        assert joined[None] == joined["spark"]
        assert joined[None].total() > 10


def test_a_python_predicate_may_be_part_of_a_lookup(
    frame: DataFrame, table: DataFrame, tmp_path: Path
) -> None:
    s = replay(frame, [range(N)], tmp_path).withWatermark("ts", "10 minutes")
    found, inputs, on = {}, {"a": s, "t": table}, ["a.x < t.low", same_parity]
    for how in ("inner", "semi", "anti"):
        found[how] = outcome(th.join(inputs, on, how=how), ["a.id"], tmp_path).rows
    rows = {(row.id, row.x) for row in frame.collect()}
    lows = [row.low for row in table.collect()]
    pairs = Counter(
        (a,) for a, x in rows for low in lows if None not in (x, low) and x < low and x % 2 == low % 2
    )
    assert found["inner"] == pairs
    assert found["semi"] == Counter(set(pairs))
    assert found["anti"] == Counter((a,) for a, _ in rows if (a,) not in pairs)
    with pytest.raises(th.QueryError, match=r"\[HOW\].*calls no Python predicate \(same_parity\)"):
        th.join({"a": s, "t": table}, ["a.x = t.low", same_parity], how="left")


def test_a_query_reads_one_version_of_a_table_in_each_epoch(
    spark: SparkSession, frame: DataFrame, tmp_path: Path
) -> None:
    """The table changes between two runs. An epoch that was not committed reads what it read before."""
    folder, checkpoint = tmp_path / "input", tmp_path / "checkpoint"
    folder.mkdir()
    found: list[tuple[int, int, str]] = []

    def run(version: str) -> None:
        stream = spark.readStream.schema(frame.schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
        table = spark.range(3).selectExpr("id * 4 AS low", "id * 4 + 4 AS high", f"'{version}' AS version")
        inputs = {"a": stream, "t": table}
        joined = th.join(inputs, "a.x >= t.low AND a.x < t.high", mailbox=(tmp_path / "shared").as_uri())

        def collect(batch: DataFrame, epoch: int) -> None:
            found.extend((epoch, row.id, row.version) for row in batch.select("a.id", "t.version").collect())

        query = joined.writeStream.foreachBatch(collect).option("checkpointLocation", str(checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()

    def add(number: int, ids: range) -> None:
        rows = frame.where(f"id >= {ids.start} AND id < {ids.stop}").coalesce(1)
        rows.write.parquet(str(tmp_path / "made"))
        for part in (tmp_path / "made").glob("*.parquet"):
            part.rename(folder / f"{number}.parquet")
        shutil.rmtree(tmp_path / "made")

    add(0, range(20))
    run("first")
    first = list(found)
    assert {(epoch, version) for epoch, _, version in first} == {(0, "first")}
    # The epoch was not committed, and runs again beside a new version of the table.
    (checkpoint / "commits" / "0").unlink()
    add(1, range(20, 40))
    found.clear()
    run("second")
    assert [one for one in found if one[0] == 0] == first
    assert {(epoch, version) for epoch, _, version in found} == {(0, "first"), (1, "second")}


def test_a_table_of_no_rows_and_a_table_in_a_statement(
    spark: SparkSession, frame: DataFrame, table: DataFrame, tmp_path: Path
) -> None:
    s = replay(frame, [range(N)], tmp_path).withWatermark("ts", "10 minutes")
    empty = th.join({"a": s, "t": table.where("n < 0")}, "a.x < t.low", how="left")
    assert outcome(empty, ["a.id", "t"], tmp_path).rows == Counter((n, None) for n in range(N))
    text = "SELECT ONLINE a.id, t.n FROM a JOIN t ON a.x >= t.low AND a.x < t.high"
    rows = outcome(th.sql(spark, text, {"a": s, "t": table}), ["*"], tmp_path).rows
    wanted = frame.join(table, (frame.x >= table.low) & (frame.x < table.high))
    assert rows == Counter(map(tuple, wanted.select("id", "n").collect()))


@pytest.mark.slow
def test_rows_of_joins_are_looked_up_too(frame: DataFrame, table: DataFrame, tmp_path: Path) -> None:
    s = replay(frame, [range(25), range(25, N)], tmp_path).withWatermark("ts", "10 minutes")
    on = "a.x >= t.low AND a.x < t.high AND a.f <= u.f AND t.n < u.n AND a.id > 5 AND v.n = 3"
    inputs = {"t": table, "a": s, "u": table, "v": table}
    plan = th.plan(inputs, on)
    text = plan.explain()
    assert text.count("by an index of the table") == 2
    assert "v: v.n = 3   (Spark's own join" in text
    found = outcome(plan.dataframe(), ["a.id", "t.n", "u.n", "v.n", "result_time"], tmp_path).rows
    whole = frame.alias("a").join(table.alias("t")).join(table.alias("u")).join(table.alias("v"))
    wanted = whole.where(on).select("a.id", "t.n", "u.n", "v.n", "a.ts")
    assert found == Counter(map(tuple, wanted.collect()))
    assert found.total() > 100


NEAREST = [
    ("a.name = t.name AND a.ts >= t.since", th.Nearest(1, by="a.ts - t.since", keep_unmatched=True)),
    ("a.x >= t.low", th.Nearest(2, by="abs(a.f - t.f)", keep_unmatched=True)),
    ("true", th.Nearest(1, by="abs(a.x - t.low)")),
    ("a.x < t.high", th.Nearest(3, by="t.f DESC NULLS FIRST")),
    (["a.x <= t.high", same_parity], th.Nearest(1, by="t.high - a.x")),
    # NaN is greater than all numbers, so here it is the nearest.
    ("a.x >= t.low", th.Nearest(1, by="t.f DESC")),
    ("a.name = t.name", th.Nearest(3, by="a.f - t.f DESC")),
    # Spark evaluates a part of the condition.
    ("a.x >= t.low AND coalesce(a.name, t.name) <> 'n3'", th.Nearest(2, by="t.f", keep_unmatched=True)),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("first", range(0, len(NEAREST), 2))
def test_the_nearest_rows_of_a_table_are_those_of_a_batch_join(
    frame: DataFrame, table: DataFrame, tmp_path: Path, first: int
) -> None:
    s = replay(frame, [range(25), range(25, N)], tmp_path).withWatermark("ts", "10 minutes")
    streamed, wanted = [], []
    for n, (on, how) in enumerate(NEAREST[first : first + 2]):
        columns = [f"{n} AS case", "a.id", "t.n"]
        streamed.append(th.join({"a": s, "t": table}, on, how=how).selectExpr(*columns))
        times = {"a": "ts", "t": "since"}
        by_units = th.join({"a": frame, "t": table}, on, how=how, event_time=times, model="auto")
        wanted.append(by_units.selectExpr(*columns))
    found = outcome(reduce(DataFrame.union, streamed), ["*"], tmp_path).rows
    assert found == Counter(map(tuple, reduce(DataFrame.union, wanted).collect()))
    assert {row[0] for row in found} == set(range(len(streamed)))


def test_as_of_joins_of_a_table_in_sql(
    spark: SparkSession, frame: DataFrame, table: DataFrame, tmp_path: Path
) -> None:
    s = replay(frame, [range(N)], tmp_path).withWatermark("ts", "10 minutes")
    text = "SELECT {} a.id, t.n FROM a ASOF JOIN t ON a.name = t.name AND a.ts >= t.since"
    found = outcome(th.sql(spark, text.format("ONLINE"), {"a": s, "t": table}), ["*"], tmp_path).rows
    assert found == Counter(map(tuple, th.sql(spark, text.format(""), {"a": frame, "t": table}).collect()))
    assert found.total() > 20
    with pytest.raises(th.QueryError, match=r"\[HOW\].*needs an index of the table 't'.*asks for it"):
        th.join({"a": s, "t": table}, "a.x < t.low", how=th.Nearest(1, by="t.low - a.x"), model="spark")
    with pytest.raises(th.QueryError, match=r"\[TABLE_PRESERVED\].*each row of the table"):
        th.join({"t": table, "a": s}, "a.x < t.low", how=th.Nearest(1, by="t.low - a.x"))


def test_two_equal_joins_of_a_query_do_not_read_the_table_of_each_other(
    frame: DataFrame, table: DataFrame, tmp_path: Path
) -> None:
    s = replay(frame, [range(N)], tmp_path).withWatermark("ts", "10 minutes")

    def join(chosen: DataFrame) -> DataFrame:
        return th.join({"a": s, "t": chosen}, "a.x >= t.low AND a.x < t.high").select("a.id", "t.n")

    twice = outcome(join(table).union(join(table)), ["*"], tmp_path).rows
    assert set(twice.values()) == {2}
    with pytest.raises(Exception, match=r"\[TABLES_ALIKE\].*give one of the tables another alias"):
        outcome(join(table).union(join(table.where("n > 9"))), ["*"], tmp_path)
