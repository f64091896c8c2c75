"""Joins of rows that are updated and deleted: results follow the changes, in stores and after a restart."""

import json
import os
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.spark.test_results import forget_commit
from thetastream.spark.changes import UnmarkedChangesWarning

Order = tuple[int, int, int]
"""An order as (id, minute, price)."""


class Feed:
    """A folder of JSON files as a stream of rows with a sign, one epoch per file."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder, self._n = spark, folder, 0
        folder.mkdir()

    def add(self, *rows: Order, w: int = 1, deleted: tuple[Order, ...] = ()) -> None:
        signed = [*((row, w) for row in rows), *((row, -1) for row in deleted)]
        lines = [
            json.dumps({"id": id_, "ts": f"2026-01-05 09:{minute:02}:00", "price": price, "w": sign})
            for (id_, minute, price), sign in signed
        ]
        path = self._folder / f"{self._n}.json"
        path.write_text("\n".join(lines))
        os.utime(path, (1_700_000_000 + self._n,) * 2)
        self._n += 1

    def open(self) -> DataFrame:
        reader = self._spark.readStream.schema("id INT, ts TIMESTAMP, price INT, w INT")
        return reader.option("maxFilesPerTrigger", 1).json(str(self._folder))


def count(rows: list[dict[str, Any]]) -> Counter[tuple[int, int]]:
    return Counter((row["o"]["id"], row["c"]["id"]) for row in rows)


@pytest.mark.parametrize("path", ["units", pytest.param("rows", marks=pytest.mark.slow)])
def test_a_store_has_the_join_of_the_rows_that_hold(
    spark: SparkSession, tmp_path: Path, path: str, only_epochs_with_rows: None
) -> None:
    orders, clicks = Feed(spark, tmp_path / "o"), Feed(spark, tmp_path / "c")
    store, late = th.ParquetStore(str(tmp_path / "store")), tmp_path / "late"
    checkpoint = tmp_path / "checkpoint"

    def run() -> list[dict[str, Any]]:
        changed = th.changes(orders.open(), sign="w").withWatermark("ts", "10 minutes")
        plain = clicks.open().drop("w").withWatermark("ts", "10 minutes")
        on = "o.price BETWEEN c.price - 1 AND c.price + 1 AND (o.id + c.id) % 7 <> 0"
        pairs = th.join(
            {"o": changed, "c": plain}, on=on, within="5 minutes", model=th.Biclique(1), late=late
        )
        assert pairs.columns == ["o", "c", "result_time", "_change_type"]
        frame = pairs if path == "units" else pairs.where("true")
        query = th.write(frame, store, checkpoint=str(checkpoint), key="o.id", trigger="available now")
        query.awaitTermination()
        return list(th.metrics(query))

    first, second, third = (1, 10, 5), (2, 11, 6), (3, 12, 20)
    orders.add(first, second, third, second)
    clicks.add((10, 11, 5), (11, 12, 6))
    run()
    assert count(store.read().to_pylist()) == {(1, 10): 1, (1, 11): 1, (2, 10): 2, (2, 11): 2}
    # The third order is corrected, one of the two equal orders goes, and a row comes and goes at once.
    orders.add((3, 12, 6), deleted=(third, second))
    clicks.add((12, 40, 5))
    orders.add((9, 40, 5), deleted=((9, 40, 5),))
    run()
    expected = {(1, 10): 1, (1, 11): 1, (2, 10): 1, (2, 11): 1, (3, 10): 1}
    assert count(store.read().to_pylist()) == expected
    # The watermark is 09:30 now, so this delete is late, and its results stay.
    orders.add((7, 41, 80))
    orders.add((5, 41, 5), deleted=(first,))
    clicks.add((13, 42, 90))
    clicks.add((14, 42, 90))
    entries = run()
    expected[5, 12] = 1
    assert count(store.read().to_pylist()) == expected
    assert sum(entry["late_deletes"] for entry in entries) == 1
    kept = spark.read.parquet(str(late)).selectExpr("alias", "o.id", "o._change_type").collect()
    assert [tuple(row) for row in kept] == [("o", 1, "delete")]
    # The log has each change.
    log = store.read(changes=True)
    assert log.schema.names == ["o", "c", "result_time", "_change_type"]
    assert store.read().schema.names == ["o", "c", "result_time"]
    kinds = Counter(log["_change_type"].to_pylist())
    assert kinds["insert"] - kinds["delete"] == len(store.read())
    assert kinds["delete"] == 2
    sql = "SELECT o.id AS id, count(*) AS n FROM results GROUP BY ALL ORDER BY ALL"
    assert th.query(store, sql).to_pydict() == {"id": [1, 2, 3, 5], "n": [2, 2, 1, 1]}
    found = th.query(store, "SELECT count(*) AS n FROM results", key={"o.id": 2}, changes=True)
    assert found.to_pydict() == {"n": [6]}
    assert count(store.read(snapshot=1).to_pylist())[2, 10] == 2
    assert len(store.read(since=datetime(2026, 1, 5, 9, 30))) == 1
    with pytest.raises(th.ThetastreamError, match="STORE_CHANGES"):
        store.forget(2)
    # An epoch runs again, as after a crash before its commit.
    last = max(entry["epoch"] for entry in entries if entry["matched"])
    forget_commit(checkpoint, last)
    run()
    assert count(store.read().to_pylist()) == expected
    assert len(store.read(changes=True)) == len(log)


def test_the_change_feed_of_a_delta_table(spark: SparkSession, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    folder = str(tmp_path / "orders")
    rows = pa.table({"id": [1, 2, 3], "price": [5, 6, 7]})
    deltalake.write_deltalake(folder, rows, configuration={"delta.enableChangeDataFeed": "true"})
    table = deltalake.DeltaTable(folder)
    table.update({"price": "9"}, predicate="id = 2")
    table.delete("id = 3")
    feed = pa.table(deltalake.DeltaTable(folder).load_cdf(starting_version=0)).to_pylist()
    assert {"update_preimage", "update_postimage", "delete"} <= {row["_change_type"] for row in feed}
    ddl = "id LONG, price LONG, _change_type STRING, _commit_version LONG, _commit_timestamp TIMESTAMP"
    changed = th.changes(spark.createDataFrame([tuple(row.values()) for row in feed], ddl))
    assert changed.columns == ["id", "price", "_change_type"]
    bids = spark.createDataFrame([(10, 9), (11, 7), (12, 5)], "id INT, bid INT")
    pairs = th.join({"o": changed, "b": bids}, on="o.price >= b.bid")
    assert pairs.schema["_change_type"].metadata
    found = [(row.o.id, row.b.id, row["_change_type"]) for row in pairs.collect()]
    assert sorted(found) == [(1, 12, "insert"), (2, 10, "insert"), (2, 11, "insert"), (2, 12, "insert")]


@pytest.fixture
def changed(spark: SparkSession, tmp_path: Path) -> DataFrame:
    return th.changes(Feed(spark, tmp_path / "in").open(), sign="w")


def test_what_a_stream_of_changes_cannot_have_is_refused(
    spark: SparkSession, tmp_path: Path, changed: DataFrame
) -> None:
    with pytest.raises(th.QueryError, match="CHANGES_EVENT_TIME"):
        th.by_arrival(changed)
    timed = changed.withWatermark("ts", "1 minute")
    assert timed.columns == ["id", "ts", "price", "_change_type"]
    plain = spark.readStream.format("rate").load().selectExpr("timestamp AS ts", "value AS id")
    other = plain.withWatermark("ts", "1 minute")
    with pytest.raises(th.QueryError, match="CHANGES_DROPPED"):
        th.join({"a": timed.select("id", "ts"), "b": other}, on="a.id < b.id", within="1m")
    with pytest.raises(th.QueryError, match="CHANGES_AGGREGATE"):
        th.aggregate({"a": timed, "b": other}, on="a.id < b.id", within="1m", aggs={"n": "max(a.id)"})
    for items in ("count(*) AS n FROM a GROUP BY id", "DISTINCT id FROM a", "id FROM a HAVING id > 1"):
        with pytest.raises(th.QueryError, match=r"CHANGES_AGGREGATE.*rows of a may be deleted"):
            th.sql(spark, f"SELECT {items}", streams={"a": timed})
    joined = "FROM a JOIN b ON a.id < b.id WITHIN 1 minute"
    for statement in (
        f"SELECT DISTINCT a.id {joined}",
        f"SELECT a.id, count(*) AS n {joined} GROUP BY a.id HAVING n > 1",
        f"SELECT histogram_numeric(a.id, 5) {joined}",
        f"SELECT count(*) AS n FROM (SELECT a.id {joined}) AS p",
    ):
        with pytest.raises(th.QueryError, match="CHANGES_AGGREGATE"):
            th.sql(spark, statement, streams={"a": timed, "b": other})
    table = spark.createDataFrame([(1,)], "id INT")
    with pytest.raises(th.QueryError, match="CHANGES_TABLE"):
        th.join({"a": timed, "b": table}, on="a.id < b.id")
    with pytest.raises(th.QueryError, match="_change_type"):
        th.join({"a": timed, "b": other}, on="a.id < b.id AND a._change_type = 'insert'", within="1m")
    with pytest.warns(UnmarkedChangesWarning, match="th.changes"):
        th.plan({"a": plain.selectExpr("*", "'x' AS _change_type"), "b": other}, on="a.id = b.id")
    pairs = th.join({"a": timed, "b": other}, on="a.id < b.id", within="1m")
    with pytest.raises(th.QueryError, match="CHANGES_DROPPED"):
        th.write(pairs, th.ParquetStore(str(tmp_path / "s")), checkpoint=str(tmp_path / "c"), select=["a.id"])
    with pytest.raises(th.QueryError, match="STORE_COLUMN"):
        th.write(
            pairs, th.ParquetStore(str(tmp_path / "s")), checkpoint=str(tmp_path / "c"), key="_change_type"
        )
    for selected in (pairs.select("a.id", "result_time"), pairs.select("b.*")):
        with pytest.raises(th.QueryError, match="CHANGES_DROPPED"):
            th.join({"p": selected, "c": other}, on="p.id = c.id", within="1m")
        with pytest.raises(th.QueryError, match="CHANGES_DROPPED"):
            th.write(selected, th.ParquetStore(str(tmp_path / "s")), checkpoint=str(tmp_path / "c"))
    behind = th.plan({"p": pairs, "c": other}, on="p.b.id = c.id", within="1m").dataframe()
    assert behind.columns == ["p", "c", "result_time", "_change_type"]


def test_a_value_that_may_differ_between_insert_and_delete_is_refused(
    spark: SparkSession, tmp_path: Path, changed: DataFrame
) -> None:
    spark.udf.register("lucky", F.udf(lambda x: x, "int").asNondeterministic())
    timed = changed.withWatermark("ts", "1 minute")
    plain = spark.readStream.format("rate").load().selectExpr("timestamp AS ts", "value AS id")
    streams = {"a": timed, "b": plain.withWatermark("ts", "1 minute")}
    joined = "FROM a JOIN b ON a.id < b.id WITHIN 1 minute"
    left = "FROM a LEFT JOIN b ON a.id < b.id WHERE lucky(a.id) > 0 WITHIN 1 minute"
    for statement, condition in (
        ("SELECT id, uuid() AS u FROM a", "NON_DETERMINISTIC.*'uuid' may have another value"),
        ("SELECT x.*, 5 AS n, lucky(x.id) FROM a AS x", r"NON_DETERMINISTIC.*'lucky\(x.id\)'"),
        ("SELECT id FROM a WHERE ts > current_timestamp", "TIME_DEPENDENT.*'current_timestamp'"),
        ("SELECT id, (SELECT 7) AS n FROM a", "CHANGES_TABLE.*subquery"),
        (f"SELECT a.id, now() {joined}", "TIME_DEPENDENT.*rows of a and b may be deleted"),
        (f"SELECT *, lucky(price) AS n {joined}", "NON_DETERMINISTIC.*'lucky"),
        (f"SELECT a.id {left}", "NON_DETERMINISTIC.*'lucky"),
        (f"SELECT a.id, sum(unix_micros(now())) {joined} GROUP BY a.id", "TIME_DEPENDENT.*'now'"),
        (f"SELECT a.id, count(*), lucky(a.id) {joined} GROUP BY a.id", "NON_DETERMINISTIC.*'lucky"),
        (f"SELECT u, count(*) FROM (SELECT uuid() AS u {joined}) AS p GROUP BY u", "NON_DETERMINISTIC"),
    ):
        with pytest.raises(th.QueryError, match=rf"(?s){condition}.*\^"):
            th.sql(spark, statement, streams=streams)
    pairs = th.join(streams, on="a.id < b.id", within="1m")
    selected = ["a.id", "now() AS at", "_change_type"]
    with pytest.raises(th.QueryError, match=r"TIME_DEPENDENT.*the rows are changes"):
        th.write(pairs, th.ParquetStore(str(tmp_path / "s")), checkpoint=str(tmp_path / "c"), select=selected)
    rows = spark.createDataFrame([(1, "a")], "id INT, name STRING")
    for option, text in (("sequence", "monotonically_increasing_id()"), ("deleted", "lucky(id) > 3")):
        with pytest.raises(th.QueryError, match=f"NON_DETERMINISTIC.*{option} is about a row alone"):
            th.changes(rows, format="upsert", key="id", **{option: text})  # type: ignore[arg-type]
    with pytest.raises(th.QueryError, match=r"NON_DETERMINISTIC.*'rand'"):
        th.join(
            {"a": rows, "b": rows}, on="a.name = b.name", how=th.Nearest(1, by="abs(a.id - b.id * rand())")
        )
    for column, condition in (
        (F.current_timestamp(), "TIME_DEPENDENT"),
        (F.expr("concat(uuid(), price)"), "NON_DETERMINISTIC"),
        (F.expr("lucky(id)"), "NON_DETERMINISTIC"),
    ):
        derived = timed.withColumn("seen", column).where("id > 0")
        with pytest.raises(th.QueryError, match=f"{condition}.*rows of a may be deleted.*'seen'"):
            th.join({**streams, "a": derived}, on="a.id < b.id", within="1m")
    derived = pairs.withColumn("r", F.rand())
    with pytest.raises(th.QueryError, match=r"NON_DETERMINISTIC.*rows of what is written.*'r'"):
        th.write(derived, th.ParquetStore(str(tmp_path / "s")), checkpoint=str(tmp_path / "c"))
    # Other operators, functions of SQL and texts that become the current time.
    spark.createDataFrame([(1,)], "n INT").createOrReplaceTempView("numbers")
    spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION clock() RETURNS TIMESTAMP RETURN now()")
    random = timed.withColumn("r", F.rand())
    for varying, condition in (
        (timed.where("rand() < 0.5"), "NON_DETERMINISTIC"),
        (timed.where("ts > now() - INTERVAL 1 HOUR"), "TIME_DEPENDENT"),
        (timed.where("id IN (SELECT n FROM numbers)"), "CHANGES_TABLE"),
        (timed.withColumn("m", F.to_timestamp(F.lit("now"))), "TIME_DEPENDENT.*'m'"),
        (random.union(random), "NON_DETERMINISTIC.*'r'"),
        (random.repartition(3).hint("rebalance"), "NON_DETERMINISTIC.*'r'"),
        (timed.select("*", F.explode(F.array(F.rand()))), "NON_DETERMINISTIC"),
        (timed.limit(5), "NON_DETERMINISTIC.*drop its delete"),
        (timed.dropDuplicates(["id"]), "NON_DETERMINISTIC.*drop its delete"),
        (timed.join(spark.table("numbers"), F.col("id") == F.col("n")), "CHANGES_TABLE"),
    ):
        with pytest.raises(th.QueryError, match=condition):
            th.join({**streams, "a": varying}, on="a.id < b.id", within="1m")
    for statement in (
        "SELECT id, clock() AS at FROM a",
        "SELECT id FROM a WHERE clock() > ts",
        f"SELECT a.id, clock() AS at {joined}",
    ):
        with pytest.raises(th.QueryError, match="TIME_DEPENDENT"):
            th.sql(spark, statement, streams=streams)
    selected = ["a.id", "clock() AS at", "_change_type"]
    with pytest.raises(th.QueryError, match="TIME_DEPENDENT"):
        th.write(pairs, th.ParquetStore(str(tmp_path / "s")), checkpoint=str(tmp_path / "c"), select=selected)
    # A stream of changes may be idle, whose control rows a filter leaves out.
    watched = th.with_watermark(changed, "ts", "1m", idle="5m")
    assert th.join({**streams, "a": watched}, on="a.id < b.id", within="1m").columns[-1] == "_change_type"
    with pytest.raises(th.QueryError, match="NON_DETERMINISTIC"):
        th.join({**streams, "a": watched.where("rand() < 0.5")}, on="a.id < b.id", within="1m")
    # What depends on the row alone stays possible, and so does a clock over rows that are only inserted.
    each = timed.union(timed).observe("seen", F.count("*")).select("*", F.explode(F.array("id")))
    th.join({**streams, "a": each.repartition(3)}, on="a.id < b.id", within="1m")
    th.sql(spark, "SELECT *, ts - INTERVAL 1 DAY AS b, map('a', id) AS m FROM a", streams=streams)
    th.sql(spark, "SELECT id, now() AS at, rand() AS r FROM b", streams=streams)


def test_the_columns_that_say_what_happened(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, "insert", 1)], "id INT, _change_type STRING, w INT")
    for refused, given, sign in (
        ("has no column '_change_type'", rows.drop("_change_type"), None),
        ("sign names 'x'", rows, "x"),
        ("must be a number and is string", rows.selectExpr("'1' AS w"), "w"),
        ("beside 'w'", rows, "w"),
        ("'_CHANGE_TYPE' beside 'w'", rows.withColumnRenamed("_change_type", "_CHANGE_TYPE"), "w"),
        ("must be a text and is int", rows.selectExpr("id", "w AS _change_type"), None),
    ):
        with pytest.raises(th.QueryError, match=f"CHANGES_COLUMN.*{refused}"):
            th.changes(given, sign=sign)
    with pytest.raises(th.QueryError, match=r"CHANGES_FORMAT.*late must be"):
        th.changes(rows.drop("_change_type"), sign="w", late="ignore")  # type: ignore[arg-type]
    unknown = spark.createDataFrame([(1, 1), (2, -1)], "id INT, w INT")
    for strict in (False, True):
        changed = th.changes(unknown, sign="w", strict=strict).select("id", "_change_type")
        pairs = th.join({"a": changed, "b": rows.select("id")}, on="a.id >= b.id")
        if strict:
            with pytest.raises(Exception, match=r"CHANGE_UNKNOWN_ROW.*'a'.*\(2\)"):
                pairs.collect()
        else:
            assert pairs.count() == 2
    wrong = spark.createDataFrame([(1, 2)], "id INT, w INT")
    with pytest.raises(Exception, match=r"CHANGES_VALUE.*1 or -1, not 2"):
        th.changes(wrong, sign="w").collect()


@pytest.mark.slow
def test_changes_are_applied_to_a_delta_table(
    spark: SparkSession, tmp_path: Path, only_epochs_with_rows: None
) -> None:
    deltalake = pytest.importorskip("deltalake")
    orders, table, checkpoint = Feed(spark, tmp_path / "o"), str(tmp_path / "table"), tmp_path / "checkpoint"

    def run() -> list[tuple[int, int, int]]:
        changed = th.changes(orders.open(), sign="w").withWatermark("ts", "1 hour")
        pairs = th.join({"a": changed, "b": changed}, on="a.id < b.id AND a.price = b.price", within="1 hour")
        rows = pairs.selectExpr("a.id AS a_id", "b.id AS b_id", "a.price", "b.ts", "_change_type")
        writer = rows.writeStream.foreachBatch(th.apply_changes(table, key=["a_id", "b_id"]))
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        writer.start().awaitTermination()
        found = deltalake.DeltaTable(table).to_pyarrow_table().to_pylist()
        return sorted((row["a_id"], row["b_id"], row["price"]) for row in found)

    orders.add((1, 10, 5), (2, 11, 5), (3, 12, 5))
    assert run() == [(1, 2, 5), (1, 3, 5), (2, 3, 5)]
    # All three rows change in one epoch, so each pair is deleted and inserted, and some more than once.
    orders.add((1, 10, 6), (2, 11, 6), (3, 12, 7), deleted=((1, 10, 5), (2, 11, 5), (3, 12, 5)))
    assert run() == [(1, 2, 6)]
    version = deltalake.DeltaTable(table).version()
    forget_commit(checkpoint, 1)
    assert run() == [(1, 2, 6)]
    assert deltalake.DeltaTable(table).version() == version


def test_what_a_delta_table_cannot_take(spark: SparkSession, tmp_path: Path) -> None:
    for table, key in (("", "id"), (3, "id"), ("t", ""), ("t", []), ("t", [3])):
        with pytest.raises(th.QueryError, match="BAD_VALUE"):
            th.apply_changes(table, key)  # type: ignore[arg-type]
    rows = spark.createDataFrame([(1, "insert")], "id INT, _change_type STRING")
    with pytest.raises(th.QueryError, match="CHANGES_DROPPED"):
        th.apply_changes(str(tmp_path / "t"), "id", query="q")(rows.drop("_change_type"), 0)
    with pytest.raises(th.QueryError, match="STORE_COLUMN"):
        th.apply_changes(str(tmp_path / "t"), "x", query="q")(rows, 0)


@pytest.mark.slow
@pytest.mark.parametrize("has_time", [True, False])
def test_upserts_are_changes(
    spark: SparkSession, tmp_path: Path, has_time: bool, only_epochs_with_rows: None
) -> None:
    """The column w has the order of the rows; a negative price deletes."""
    orders, store = Feed(spark, tmp_path / "o"), th.ParquetStore(str(tmp_path / "store"))
    checkpoint = tmp_path / "checkpoint"

    def run() -> Counter[tuple[int, int]]:
        rows = orders.open()
        rows = rows.withWatermark("ts", "1 hour") if has_time else rows
        changed = th.changes(rows, format="upsert", key="id", sequence="w", deleted="price < 0").drop("w")
        changed = changed if has_time else changed.withWatermark("ts", "1 hour")
        assert changed.columns == ["id", "ts", "price", "_change_type"]
        pairs = th.join({"o": changed, "c": changed}, on="o.id < c.id AND o.price = c.price", within="1 hour")
        th.write(pairs, store, checkpoint=str(checkpoint), trigger="available now").awaitTermination()
        return count(store.read().to_pylist())

    orders.add((1, 10, 5), (2, 11, 5), (3, 12, 5), w=1)
    assert run() == {(1, 2): 1, (1, 3): 1, (2, 3): 1}
    # Row 1 changes twice in one epoch, row 2 comes again as it was, and an older row 3 comes too late.
    orders.add((1, 10, 9), (2, 11, 5), w=2)
    orders.add((3, 12, 7), w=0)
    assert run() == {(2, 3): 1}
    orders.add((3, 12, -1), w=3)
    orders.add((1, 13, 5), w=4)
    assert run() == {(1, 2): 1}
    first = store.read_snapshot(1)["_change_type"].to_pylist()
    second = store.read_snapshot(2)["_change_type"].to_pylist()
    assert (first, second) == (["insert"] * 3, ["delete"] * 2)


def test_upserts_of_a_batch_are_the_latest_rows(spark: SparkSession) -> None:
    rows = [(1, "a", 1), (2, "b", 2), (1, "c", 3), (2, None, 4), (3, "d", 5), (3, "e", 4)]
    frame = spark.createDataFrame(rows, "id INT, name STRING, n INT")
    changed = th.changes(frame, format="upsert", key=["id"], sequence="n", deleted="name IS NULL")
    assert sorted(map(tuple, changed.collect())) == [(1, "c", 3, "insert"), (3, "d", 5, "insert")]
    assert changed.schema["_change_type"].metadata
    for refused, asked in (
        ("CHANGES_FORMAT.*key, deleted does not belong", {"key": "id", "deleted": "name IS NULL"}),
        ("CHANGES_FORMAT.*not 'maxwell'", {"format": "maxwell"}),
        (r"CHANGES_FORMAT.*not \[\]", {"format": []}),
        ("CHANGES_FORMAT.*sign does not belong", {"format": "upsert", "key": "id", "sign": "n"}),
        ("CHANGES_FORMAT.*key must name", {"format": "upsert"}),
        ("UNKNOWN_COLUMN.*'x'", {"format": "upsert", "key": "x"}),
        ("UNRESOLVED_COLUMN.*sequence", {"format": "upsert", "key": "id", "sequence": "offset"}),
        ("CHANGES_FORMAT.*SQL expression", {"format": "upsert", "key": "id", "deleted": 3}),
        ("CHANGES_FORMAT.*must be a condition", {"format": "upsert", "key": "id", "deleted": "n + 1"}),
    ):
        with pytest.raises(th.QueryError, match=refused):
            th.changes(frame, **asked)  # type: ignore[arg-type]
    for sequence in ("make_ym_interval(0, n)", "parse_json('1')"):
        with pytest.raises(
            th.QueryError, match=r"UNSUPPORTED_TYPE.*sequence must be a value that units order"
        ):
            th.changes(frame, format="upsert", key="id", sequence=sequence)
    collated = frame.selectExpr("name COLLATE UTF8_LCASE AS k", "n")
    with pytest.raises(th.QueryError, match=r"UNSUPPORTED_TYPE.*'k'.*by their collation"):
        th.changes(collated, format="upsert", key="k")
    for key in ("map('a', id)", "array(map('a', id))", "struct(id, map('a', id))"):
        with pytest.raises(th.QueryError, match=r"UNSUPPORTED_TYPE.*a map identifies no row"):
            th.changes(frame.selectExpr(f"{key} AS k", "n"), format="upsert", key="k")


def test_a_union_with_rows_that_are_no_changes_is_an_error(spark: SparkSession) -> None:
    changed = th.changes(spark.createDataFrame([(1, 1)], "id INT, w INT"), sign="w")
    plain = spark.createDataFrame([(2,)], "id INT")
    feed = spark.createDataFrame([(2, "update_postimage")], "id INT, _change_type STRING")
    for rows in (changed.unionByName(plain, allowMissingColumns=True), changed.unionByName(feed)):
        with pytest.raises(Exception, match=r"CHANGES_VALUE.*a row of o is no insert and no delete"):
            th.join({"o": rows, "p": plain}, on="o.id <= p.id").collect()
    both = changed.unionByName(th.changes(feed))
    assert th.join({"o": both, "p": plain}, on="o.id <= p.id").count() == 2


def test_groups_of_changes_are_rows(spark: SparkSession) -> None:
    orders = spark.createDataFrame([(1, 5, 1), (2, 6, 1), (2, 6, -1), (1, 7, 1)], "id INT, price INT, w INT")
    bids = spark.createDataFrame([(1, 10), (2, 11)], "order INT, bid INT")
    changed = th.changes(orders, sign="w")
    pairs = th.join({"o": changed, "b": bids}, on="o.price < b.bid")
    n = "sum(CASE WHEN _change_type = 'insert' THEN 1 ELSE -1 END) AS n"
    for groups, expected in ((changed.groupBy("id"), {1: 2, 2: 0}), (pairs.groupBy("o.id"), {1: 4})):
        counted = th.join({"g": groups.agg(F.expr(n)), "b": bids}, on="g.id = b.order")
        assert counted.columns == ["g", "b"]
        assert {row.g.id: row.g.n for row in counted.collect()} == expected


def test_a_statement_over_changes_has_changes(spark: SparkSession, tmp_path: Path) -> None:
    orders = spark.createDataFrame([(1, 5, 1), (2, 6, 1), (2, 6, -1), (3, 7, -1)], "id INT, price INT, w INT")
    bids = spark.createDataFrame([(1, 10), (2, 11)], "order INT, bid INT")
    streams = {"o": th.changes(orders, sign="w"), "b": bids}

    def run(statement: str) -> list[tuple[Any, ...]]:
        rows = th.sql(spark, statement, streams=streams)
        assert rows.schema["_change_type"].metadata
        return sorted(map(tuple, rows.collect()))

    joined = "FROM o JOIN b ON o.id >= b.order"
    expected = [(1, 10, "insert"), (3, 10, "delete"), (3, 11, "delete")]
    assert run(f"SELECT o.id, bid {joined}") == expected
    assert run(f"SELECT id, b.bid, _change_type {joined} WHERE price < 9 -- and no more") == expected
    assert run(f"SELECT * {joined}")[0] == (1, 5, 1, 10, "insert")
    assert run("SELECT id FROM o WHERE price > 5") == [(2, "delete"), (2, "insert"), (3, "delete")]
    assert len(run("SELECT * FROM o")[0]) == 3
    using = "FROM o JOIN (SELECT order AS id, bid FROM b) AS b USING (id)"
    assert run(f"SELECT * {using}") == [(1, 5, 10, "insert")]
    assert run("SELECT o.id, b.bid FROM o LEFT JOIN b ON o.id = b.order") == [
        (1, 10, "insert"),
        (3, None, "delete"),
    ]
    nested = f"SELECT p.id, c.bid FROM (SELECT o.id, b.order {joined}) AS p JOIN b AS c ON p.order = c.order"
    assert run(nested) == expected
    th.sql(spark, f"CREATE OR REPLACE VIEW found (a, b) AS SELECT o.id, bid {joined}", streams=streams)
    assert spark.table("found").columns == ["a", "b", "_change_type"]
    assert th.sql(spark, "SELECT a FROM found").columns == ["a", "_change_type"]
    for statement in (
        f"SELECT o.id AS _change_type {joined}",
        f"SELECT o.id, 'insert' AS _CHANGE_TYPE {joined}",
        f"SELECT _change_type, o.id, _change_type {joined}",
        "SELECT id, 'insert' AS _change_type FROM o",
    ):
        with pytest.raises(th.QueryError, match=r"CHANGES_COLUMN.*select this column itself, once"):
            th.sql(spark, statement, streams=streams)
