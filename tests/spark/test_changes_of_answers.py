"""Outer, semi and anti joins of rows that are updated and deleted, in Spark."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.spark.test_changes import Feed

ROWS = (
    [(1, 5, 1), (2, 6, 1), (2, 6, 1), (3, 9, 1), (2, 6, -1), (3, 9, -1), (4, 40, 1), (5, None, 1)],
    [(10, 5, 1), (11, 6, 1), (11, 6, -1), (12, 80, 1), (13, 4, 1), (13, 4, -1), (13, 4, 1)],
)
"""The rows of both streams: id, price and sign."""
UNITS, RESIDUAL = "l.price BETWEEN r.bid - 1 AND r.bid + 1", "(l.id * r.id) % 3 <> 0"


def net(rows: DataFrame) -> DataFrame:
    """Leave the rows that hold."""
    names = [name for name in rows.columns if name != "w"]
    counted = rows.groupBy(*names).agg(F.sum("w").cast("int").alias("copies")).where("copies > 0")
    return counted.select(*names, F.explode(F.sequence(F.lit(1), "copies"))).drop("col")


def as_tuple(row: Row | None) -> tuple[Any, ...] | None:
    return None if row is None else tuple(row)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "how", ["full", "semi", *(pytest.param(name, marks=SLOW) for name in ("left", "right", "anti"))]
)
def test_a_batch_join_answers_the_rows_that_hold(spark: SparkSession, how: str) -> None:
    left = spark.createDataFrame(ROWS[0], "id INT, price INT, w INT")
    right = spark.createDataFrame(ROWS[1], "id INT, bid INT, w INT")
    changed = {"l": th.changes(left, sign="w"), "r": th.changes(right, sign="w")}
    for on in (UNITS, f"{UNITS} AND {RESIDUAL}"):
        found = th.join(changed, on=on, how=how)
        assert found.schema["_change_type"].metadata
        aliases = [name for name in found.columns if name != "_change_type"]
        rows = found.collect()
        assert {row["_change_type"] for row in rows} == {"insert"}
        theirs = (
            net(left)
            .alias("l")
            .join(net(right).alias("r"), F.expr(on), f"left_{how}" if len(aliases) < 2 else how)
        )
        expected = theirs.select(
            *(F.when(F.col(f"{a}.id").isNotNull(), F.struct(f"{a}.*")).alias(a) for a in aliases)
        )
        assert Counter(tuple(as_tuple(row[a]) for a in aliases) for row in rows) == Counter(
            tuple(as_tuple(row[a]) for a in aliases) for row in expected.collect()
        )


@pytest.mark.slow
@pytest.mark.parametrize("on", [UNITS, f"{UNITS} AND {RESIDUAL}"], ids=["units", "residual"])
def test_the_nearest_of_a_batch_are_among_the_rows_that_hold(spark: SparkSession, on: str) -> None:
    left = spark.createDataFrame(ROWS[0], "id INT, price INT, w INT")
    right = spark.createDataFrame(ROWS[1], "id INT, bid INT, w INT")
    changed = {"l": th.changes(left, sign="w"), "r": th.changes(right, sign="w")}
    how = th.Nearest(1, by="abs(l.price - r.bid)", keep_unmatched=True)
    rows = th.join(changed, on=on, how=how).collect()
    assert {row["_change_type"] for row in rows} == {"insert"}
    ranked = """SELECT l.id, r.id AS r, rank() OVER (PARTITION BY l.n ORDER BY abs(l.price - r.bid)) AS place
        FROM {l} l LEFT JOIN {r} r ON ON_CONDITION"""
    numbered = net(left).withColumn("n", F.monotonically_increasing_id())
    best = spark.sql(ranked.replace("ON_CONDITION", on), l=numbered, r=net(right)).where("place = 1")
    assert Counter((row.l.id, row.r and row.r.id) for row in rows) == Counter(
        (row.id, row.r) for row in best.collect()
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "on"),
    [
        ("left", "l.price = r.price AND (l.id + r.id) % 2 = 1"),
        ("semi", "l.price = r.price"),
        ("full", "l.price = r.price AND (l.id + r.id) % 2 = 1"),
    ],
)
def test_a_store_has_the_answers_of_the_rows_that_hold(
    spark: SparkSession, tmp_path: Path, how: str, on: str, only_epochs_with_rows: None
) -> None:
    orders, fills = Feed(spark, tmp_path / "l"), Feed(spark, tmp_path / "r")
    store = th.ParquetStore(str(tmp_path / "store"))

    def run() -> set[tuple[int | None, int | None]]:
        frames = {
            alias: th.changes(feed.open(), sign="w").withWatermark("ts", "10 minutes")
            for alias, feed in (("l", orders), ("r", fills))
        }
        joined = th.join(frames, on=on, within="5 minutes", how=how)
        checkpoint = str(tmp_path / "checkpoint")
        th.write(joined, store, checkpoint=checkpoint, trigger="available now").awaitTermination()
        rows = store.read().to_pylist()
        found = [tuple((row.get(alias) or {}).get("id") for alias in "lr") for row in rows]
        assert len(found) == len(set(found))
        return set(found)

    orders.add((1, 10, 5), (2, 10, 6), (3, 10, 7), (5, 10, 9))
    fills.add((10, 11, 5), (11, 11, 6), (12, 11, 7), (14, 11, 9))
    pairs = set() if how == "semi" else {(1, 10), (2, 11), (3, 12), (5, 14)}
    assert run() == pairs
    # The first loses its partner, the second another one that comes back, and the fifth is deleted.
    orders.add((4, 10, 8), deleted=((5, 10, 9),))
    fills.add((11, 12, 6), (13, 12, 70), deleted=((10, 11, 5), (11, 11, 6)))
    pairs = set() if how == "semi" else {(2, 11), (3, 12)}
    assert run() == pairs
    # The watermark passes all of them.
    orders.add((6, 50, 90))
    fills.add((15, 50, 91))
    run()
    orders.add((7, 51, 90))
    fills.add((16, 51, 91))
    alone = {(1, None), (4, None)}
    if how == "semi":
        assert run() == {(2, None), (3, None)}
    else:
        assert run() == pairs | alone | ({(None, 13), (None, 14)} if how == "full" else set())


def test_an_early_outer_join_of_a_batch_is_the_outer_join(spark: SparkSession) -> None:
    left = spark.createDataFrame(ROWS[0], "id INT, price INT, w INT")
    right = spark.createDataFrame(ROWS[1], "id INT, bid INT, w INT").drop("w")
    found = th.join({"l": th.changes(left, sign="w"), "r": right}, on=UNITS, how="full", outer="early")
    assert found.columns == ["l", "r", "_change_type"]
    rows = found.collect()
    assert {row["_change_type"] for row in rows} == {"insert"}
    expected = net(left).alias("l").join(right.alias("r"), F.expr(UNITS), "full").select("l.id", "r.id")
    assert Counter((row.l and row.l.id, row.r and row.r.id) for row in rows) == Counter(
        map(tuple, expected.collect())
    )
    for asked in ({"how": "inner", "outer": "early"}, {"how": "left", "outer": "soon"}):
        with pytest.raises(th.QueryError, match="OUTER"):
            th.plan({"l": left, "r": right}, on=UNITS, **asked)  # type: ignore[arg-type]
    with pytest.raises(th.QueryError, match=r"OUTER.*Spark evaluates"):
        th.plan({"l": left, "r": right}, on=f"{UNITS} AND {RESIDUAL}", how="left", outer="early")


@pytest.mark.slow
@pytest.mark.parametrize("is_statement", [False, True], ids=["join", "sql"])
@pytest.mark.parametrize("has_deletes", [False, True], ids=["inserted", "deleted"])
def test_rows_without_partners_come_at_once_and_are_taken_back(
    spark: SparkSession, tmp_path: Path, is_statement: bool, has_deletes: bool, only_epochs_with_rows: None
) -> None:
    orders, fills = Feed(spark, tmp_path / "l"), Feed(spark, tmp_path / "r")
    store = th.ParquetStore(str(tmp_path / "store"))

    def run() -> set[tuple[int | None, int | None]]:
        frames = {"l": orders.open().drop("w"), "r": fills.open()}
        frames["r"] = th.changes(frames["r"], sign="w") if has_deletes else frames["r"].drop("w")
        if is_statement:
            text = "SELECT l.id, r.id AS r FROM l LEFT JOIN r ON l.price = r.price"
            joined = th.sql(spark, text, frames, outer="early")
            assert joined.columns == ["id", "r", "_change_type"]
        else:
            joined = th.join(frames, on="l.price = r.price", how="left", outer="early")
            joined = joined.selectExpr("l.id", "r.id AS r", "_change_type")
        checkpoint = str(tmp_path / "checkpoint")
        th.write(joined, store, checkpoint=checkpoint, trigger="available now").awaitTermination()
        rows = [(row["id"], row["r"]) for row in store.read().to_pylist()]
        assert len(rows) == len(set(rows))
        return set(rows)

    orders.add((1, 10, 5), (2, 10, 6), (3, 10, 7))
    fills.add((10, 11, 7))
    assert run() == {(1, None), (2, None), (3, 10)}
    fills.add((11, 11, 5), (12, 11, 5))
    assert run() == {(1, 11), (1, 12), (2, None), (3, 10)}
    change = store.read_snapshot(2).to_pylist()
    assert Counter((row["r"], row["_change_type"]) for row in change) == {
        (None, "delete"): 1,
        (11, "insert"): 1,
        (12, "insert"): 1,
    }
    if has_deletes:
        fills.add(deleted=((11, 11, 5), (10, 11, 7)))
        assert run() == {(1, 12), (2, None), (3, None)}
        fills.add((13, 20, 7), deleted=((12, 11, 5),))
        assert run() == {(1, None), (2, None), (3, 13)}


@pytest.mark.slow
def test_a_row_whose_partners_are_all_earlier_can_be_deleted(
    spark: SparkSession, tmp_path: Path, only_epochs_with_rows: None
) -> None:
    """It is deleted when its partners are known. A strict stream takes the delete, and no answer is left."""
    orders, fills = Feed(spark, tmp_path / "l"), Feed(spark, tmp_path / "r")
    store = th.ParquetStore(str(tmp_path / "store"))

    def run() -> list[tuple[int, int | None]]:
        frames = {
            alias: th.changes(feed.open(), sign="w", strict=True).withWatermark("ts", "10 minutes")
            for alias, feed in (("l", orders), ("r", fills))
        }
        on = "l.price = r.price AND r.ts <= l.ts - INTERVAL 3 MINUTES"
        joined = th.join(frames, on=on, within="5 minutes", how="left")
        checkpoint = str(tmp_path / "checkpoint")
        th.write(joined, store, checkpoint=checkpoint, trigger="available now").awaitTermination()
        return sorted((row["l"]["id"], (row["r"] or {}).get("id")) for row in store.read().to_pylist())

    orders.add((1, 14, 10), (2, 15, 10), (3, 20, 10))
    fills.add((9, 22, 11))
    run()
    orders.add((4, 22, 10))
    fills.add((10, 22, 11))
    assert run() == []
    orders.add((5, 40, 10), deleted=((1, 14, 10),))
    fills.add((11, 40, 11))
    assert run() == []
    orders.add((6, 60, 10))
    fills.add((12, 60, 11))
    run()
    orders.add((7, 60, 10))
    fills.add((13, 60, 11))
    assert [row for row in run() if row[0] < 5] == [(2, None), (3, None), (4, None)]
