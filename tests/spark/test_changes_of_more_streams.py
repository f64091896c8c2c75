"""Joins of three streams whose rows are updated and deleted, in Spark, and join tasks over such streams."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from tests.spark.test_changes import Feed, Order
from tests.spark.test_changes_of_answers import ROWS, net
from tests.support.groups import list_groups

THIRD = [(20, 6, 1), (21, 5, 1), (21, 5, -1), (22, 4, 1), (22, 4, 1), (23, 9, 1)]
"""The rows of the third stream: id, offer and sign."""
SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> dict[str, DataFrame]:
    names = {"l": "price", "r": "bid", "s": "offer"}
    rows = dict(zip(names, (*ROWS, THIRD), strict=True))
    return {
        alias: spark.createDataFrame(rows[alias], f"id INT, {n} INT, w INT") for alias, n in names.items()
    }


STATEMENTS = [
    "SELECT l.id, r.id AS r, s.offer {l} JOIN {r} ON l.price >= r.bid JOIN {s} ON s.offer <> r.bid",
    "SELECT l.id % 2 AS g, count(*) AS n, sum(s.offer - r.bid) AS x, avg(l.price) AS y "
    "{l} JOIN {r} ON l.price >= r.bid JOIN {s} ON s.offer <> r.bid GROUP BY l.id % 2",
    "SELECT l.id, r.bid, s.id AS s {l} LEFT JOIN {r} ON l.price = r.bid LEFT JOIN {s} ON s.offer = l.price",
    "SELECT l.id, s.id AS s {l} LEFT SEMI JOIN {r} ON l.price >= r.bid FULL JOIN {s} ON s.offer = l.price",
]


@pytest.mark.parametrize("n", [1, *(pytest.param(n, marks=SLOW) for n in (0, 2, 3))])
def test_statements_over_three_tables_answer_the_rows_that_hold(
    spark: SparkSession, tables: dict[str, DataFrame], n: int
) -> None:
    statement = STATEMENTS[n]
    plain = {alias: alias for alias in "rs"} | {"l": "FROM l"}
    changed = {alias: th.changes(table, sign="w") for alias, table in tables.items()}
    found = th.sql(spark, statement.format(**plain), changed)
    if "GROUP" not in statement:
        assert {row["_change_type"] for row in found.collect()} == {"insert"}
        found = found.drop("_change_type")
    theirs = {alias: f"{{{alias}}} AS {alias}" for alias in "rs"} | {"l": "FROM {l} AS l"}
    expected = spark.sql(statement.format(**theirs), **{alias: net(table) for alias, table in tables.items()})
    assert list_groups(found) == list_groups(expected)


class Feeds:
    """Three streams of changes."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.feeds = {alias: Feed(spark, folder / alias) for alias in "abc"}

    def add(self, *rows: tuple[Order, ...], **deleted: tuple[Order, ...]) -> None:
        for alias, mine in zip("abc", rows, strict=True):
            self.feeds[alias].add(*mine, deleted=deleted.get(alias, ()))

    def open(self, *aliases: str) -> dict[str, DataFrame]:
        return {
            alias: th.changes(self.feeds[alias].open(), sign="w").withWatermark("ts", "10 minutes")
            for alias in aliases
        }


@SLOW
@pytest.mark.parametrize(
    "model",
    [None, th.Matrix(1, 2), th.Ring(2, hops="epoch"), th.Ring(2, hops="mailbox"), th.CTR(2)],
    ids=["pipeline", "matrix", "epoch", "mailbox", "ctr"],
)
def test_a_store_has_the_triples_that_hold(
    spark: SparkSession, tmp_path: Path, model: Any, only_epochs_with_rows: None
) -> None:
    feeds, store = Feeds(spark, tmp_path), th.ParquetStore(str(tmp_path / "store"))

    def run() -> Counter[tuple[int, ...]]:
        on = "a.price = b.price AND b.price < c.price"
        joined = th.join(feeds.open(*"abc"), on=on, within="5 minutes", model=model)
        assert joined.columns == ["a", "b", "c", "result_time", "_change_type"]
        checkpoint = str(tmp_path / "checkpoint")
        th.write(joined, store, checkpoint=checkpoint, trigger="available now").awaitTermination()
        rows = store.read().to_pylist()
        return Counter(tuple(row[alias]["id"] for alias in "abc") for row in rows)

    feeds.add(((1, 10, 5), (2, 10, 6)), ((11, 11, 5), (12, 11, 6), (12, 11, 6)), ((21, 12, 6), (22, 12, 7)))
    first = {(1, 11, 21): 1, (1, 11, 22): 1, (2, 12, 22): 2}
    if model == th.Ring(2, hops="mailbox") or model == th.CTR(2):
        run()  # results of the mailbox come in the next epoch
    else:
        assert run() == first
    # A row of each stream is deleted, another one is corrected, and the watermark passes none of them.
    feeds.add(
        ((3, 12, 6),),
        ((13, 12, 5),),
        ((23, 12, 8), (21, 12, 9)),
        a=((1, 10, 5),),
        b=((12, 11, 6),),
        c=((21, 12, 6), (22, 12, 7)),
    )
    run()
    feeds.add(((4, 12, 90),), ((14, 12, 91),), ((24, 12, 1),))
    assert run() == {(2, 12, 23): 1, (2, 12, 21): 1, (3, 12, 23): 1, (3, 12, 21): 1}
    kinds = Counter(store.read(changes=True)["_change_type"].to_pylist())
    assert kinds["insert"] - kinds["delete"] == 4
    assert kinds["delete"] >= 4


@SLOW
def test_tasks_share_streams_of_changes(
    spark: SparkSession, tmp_path: Path, only_epochs_with_rows: None
) -> None:
    feeds, net_rows = Feeds(spark, tmp_path), Counter[tuple[str, int, int]]()
    feeds.add(((1, 10, 5), (2, 10, 6)), ((11, 11, 5), (12, 15, 5)), ())
    feeds.add(((3, 12, 5),), ((13, 12, 6),), (), a=((1, 10, 5),), b=((12, 15, 5),))
    near, far = (
        {"on": "a.price = b.price", "within": "2 minutes"},
        {
            "on": "a.price <= b.price AND a.id > 0",
            "within": "9 minutes",
        },
    )
    tasks = th.join_many(feeds.open("a", "b"), {"near": near, "far": far})
    assert tasks.together.columns == ["task", "a", "b", "result_time", "_change_type"]

    def add(batch: DataFrame, _: int) -> None:
        for row in batch.collect():
            net_rows[row.task, row.a.id, row.b.id] += 1 if row["_change_type"] == "insert" else -1

    writer = tasks.together.writeStream.foreachBatch(add).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    near_rows, far_rows = {(2, 13), (3, 11)}, {(2, 13), (3, 11), (3, 13)}
    expected = {("near", *pair) for pair in near_rows} | {("far", *pair) for pair in far_rows}
    assert +net_rows == Counter(expected)
    assert not -net_rows
