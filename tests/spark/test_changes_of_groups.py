"""Groups over joins of rows that are updated and deleted, in Spark."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from tests.spark.test_changes import Feed
from tests.spark.test_changes_of_answers import net
from tests.support.groups import SCHEMA, draw_rows, list_groups

JOIN = "FROM r JOIN s ON abs(r.id - s.id) < 7 AND r.id % 5 <= s.id % 4"
FOLDED = [
    f"SELECT r.k, count(*) AS n, count(s.x), sum(s.n), avg(s.n), sum(s.d), avg(s.d) {JOIN} GROUP BY r.k",
    f"SELECT r.id % 3 AS g, 1 + sum(s.d) / count(*) FILTER (WHERE s.b) AS z {JOIN} GROUP BY r.id % 3",
    f"SELECT r.id, sum(r.wide - s.id), sum(r.d * s.id) FILTER (WHERE r.id < s.id) AS x {JOIN} GROUP BY r.id",
    f"SELECT s.k, 100 / count(*) AS share, sum(s.id * 0.5D) {JOIN} AND r.n <= s.n GROUP BY s.k",
    f"SELECT count(*), sum(s.id), avg(r.d) {JOIN} AND r.id > 900",
    f"SELECT s.k {JOIN} AND s.id > 55 GROUP BY s.k",
]


def draw_changes(spark: SparkSession, shift: int) -> DataFrame:
    """Draw rows, of which some are there twice, some are deleted, and some come again."""
    rows = draw_rows(40, shift)
    signed = (
        [(*row, 1) for row in rows] + [(*row, 1) for row in rows[::7]] + [(*row, -1) for row in rows[::3]]
    )
    return spark.createDataFrame([*signed, *((*row, 1) for row in rows[::6])], f"{SCHEMA}, w INT")


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> dict[str, DataFrame]:
    return {name: draw_changes(spark, shift) for shift, name in enumerate("rs")}


@pytest.mark.parametrize("n", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, len(FOLDED)))])
def test_groups_of_batches_are_those_of_the_rows_that_hold(
    spark: SparkSession, tables: dict[str, DataFrame], n: int
) -> None:
    changed = {name: th.changes(table, sign="w") for name, table in tables.items()}
    plain = {name: net(table) for name, table in tables.items()}
    found, expected = th.sql(spark, FOLDED[n], changed), spark.sql(_embrace(FOLDED[n]), **plain)
    assert [one.dataType for one in found.schema] == [one.dataType for one in expected.schema]
    assert list_groups(found) == list_groups(expected)


def test_aggregates_from_which_no_row_can_be_taken_out_are_refused(tables: dict[str, DataFrame]) -> None:
    changed = {name: th.changes(table, sign="w") for name, table in tables.items()}
    for refused, why in (
        ("max(s.n)", "a deleted row cannot be taken out of max"),
        ("count(DISTINCT s.n)", "units cannot fold their groups"),
    ):
        with pytest.raises(th.QueryError, match=f"CHANGES_AGGREGATE.*rows of r and s may be deleted.*{why}"):
            th.aggregate(changed, "r.id = s.id", aggs={"x": refused})
    with pytest.raises(th.QueryError, match=r"CHANGES_AGGREGATE.*HAVING counts a delete"):
        th.aggregate(changed, "r.id = s.id", aggs={"n": "count(*)"}, having="count(*) > 3")


def _embrace(statement: str) -> str:
    return statement.replace("FROM r", "FROM {r} r").replace("JOIN s", "JOIN {s} s")


class Positions:
    """A query that groups the pairs of two feeds."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.orders, self.clicks = Feed(spark, folder / "o"), Feed(spark, folder / "c")

    def group(self, by: str) -> DataFrame:
        frames = {
            name: th.changes(feed.open(), sign="w").withWatermark("ts", "10 minutes")
            for name, feed in (("o", self.orders), ("c", self.clicks))
        }
        aggs = {"n": "count(*)", "price": "sum(c.price)", "half": "100 / count(*)"}
        on = "o.price BETWEEN c.price - 1 AND c.price + 1"
        return th.aggregate(frames, on, within="5 minutes", group_by=by, aggs=aggs, model=th.Biclique(2))


@pytest.mark.slow
def test_a_group_is_deleted_with_its_last_pair(
    spark: SparkSession, tmp_path: Path, only_epochs_with_rows: None
) -> None:
    deltalake = pytest.importorskip("deltalake")
    table, positions = str(tmp_path / "table"), Positions(spark, tmp_path)
    updates: list[tuple[Any, ...]] = []

    def run() -> list[tuple[Any, ...]]:
        apply = th.apply_changes(table, key="id")
        groups = positions.group("o.id")
        assert groups.columns == ["id", "n", "price", "half", "_change_type"]

        def keep(batch: DataFrame, epoch: int) -> None:
            updates.extend(map(tuple, batch.collect()))
            apply(batch, epoch)

        writer = groups.writeStream.outputMode("update").foreachBatch(keep).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
        found = deltalake.DeltaTable(table).to_pyarrow_table().to_pylist()
        return sorted(tuple(row.values())[:3] for row in found)

    positions.orders.add((1, 10, 5), (2, 11, 6), (3, 11, 9))
    positions.clicks.add((10, 11, 5), (11, 12, 6), (12, 12, 10))
    assert run() == [(1, 2, 11), (2, 2, 11), (3, 1, 10)]
    positions.orders.add((3, 11, 6), deleted=((3, 11, 9), (1, 10, 5)))
    positions.clicks.add((13, 12, 6), deleted=((10, 11, 5),))
    assert run() == [(2, 2, 12), (3, 2, 12)]
    assert (1, None, None, None, "delete") in updates
    with pytest.raises(th.QueryError, match=r"CHANGES_AGGREGATE.*groups of changes"):
        th.plan({"g": positions.group("o.id"), "c": positions.clicks.open()}, on="g.id = c.id")


@pytest.mark.slow
def test_windows_of_changes_are_appended_when_they_are_final(
    spark: SparkSession, tmp_path: Path, only_epochs_with_rows: None
) -> None:
    positions, store = Positions(spark, tmp_path), th.ParquetStore(str(tmp_path / "store"))
    positions.orders.add((1, 10, 5), (2, 11, 6), (3, 22, 9))
    positions.clicks.add((10, 11, 5), (11, 12, 6), (12, 23, 10))
    positions.orders.add((4, 12, 5), (9, 50, 90), deleted=((3, 22, 9), (2, 11, 6)))
    positions.clicks.add((19, 50, 20))
    positions.orders.add((8, 51, 90))
    positions.clicks.add((18, 51, 20))
    groups = positions.group("window(result_time, '10 minutes')")
    selected, checkpoint = ["window.start AS start", "n", "price"], tmp_path / "checkpoint"
    query = th.write(groups, store, select=selected, checkpoint=checkpoint, trigger="available now")
    query.awaitTermination()
    # The pairs of the window from 20 to 30 minutes are all deleted.
    assert [(row["start"].minute, row["n"], row["price"]) for row in store.read().to_pylist()] == [
        (10, 4, 22)
    ]


@pytest.mark.slow
def test_all_groups_are_written_anew_without_those_that_are_gone(
    spark: SparkSession, tmp_path: Path, only_epochs_with_rows: None
) -> None:
    positions = Positions(spark, tmp_path)
    positions.orders.add((1, 10, 5), (2, 11, 6))
    positions.clicks.add((10, 11, 5))
    positions.orders.add((3, 12, 5), deleted=((1, 10, 5),))
    positions.clicks.add((11, 12, 30))
    streams = {
        name: th.changes(feed.open(), sign="w").withWatermark("ts", "10 minutes")
        for name, feed in (("o", positions.orders), ("c", positions.clicks))
    }
    statement = (
        "INSERT INTO found SELECT o.id, count(*) AS n FROM o JOIN c ON abs(o.price - c.price) < 2 "
        "WITHIN 5 minutes GROUP BY o.id"
    )
    sinks = {"found": {"format": "memory"}}
    query = th.insert(
        spark,
        statement,
        streams,
        sinks,
        checkpoint=tmp_path / "checkpoint",
        mode="complete",
        trigger="available now",
        name="groups_of_changes",
    )
    assert query is not None
    query.awaitTermination()
    rows = spark.table("groups_of_changes").select("id", "n").collect()
    assert sorted(map(tuple, rows)) == [(2, 1), (3, 1)]
