"""Versions of rows as a stream: each tuple has the version of its key at its time, beside DuckDB."""

import json
import os
import random
from collections import Counter
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import thetastream as th

START = datetime(2026, 1, 5, 9)
EPOCHS, KEYS = 12, 5
DDL = {
    "orders": "id INT, ts TIMESTAMP, currency STRING",
    "rates": "ts TIMESTAMP, currency STRING, n INT, price INT",
}
AS_OF = (
    "SELECT o.id, r.price FROM orders AS o {} JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r "
    "ON o.currency = r.currency"
)
Rows = list[dict[str, Any]]


def draw_rows(chance: random.Random) -> dict[str, list[Rows]]:
    """Draw the rows of each epoch. Versions may have one time, and a price of NULL says that it is gone."""
    drawn: dict[str, list[Rows]] = {name: [[] for _ in range(EPOCHS)] for name in DDL}
    for epoch in range(EPOCHS):
        late = 5_000 if epoch == EPOCHS - 1 else 0  # the last epoch moves the watermark past all others
        for n in range(15):
            for name, epochs in drawn.items():
                number = epoch * 15 + n
                second = max(0, 20 * epoch - chance.randrange(25)) + late
                row = {"ts": str(START + timedelta(seconds=second)), "currency": f"C{chance.randrange(KEYS)}"}
                price = None if chance.random() < 0.3 else number
                more = {"id": number} if name == "orders" else {"n": number, "price": price}
                epochs[epoch].append({**more, **row})
    return drawn


def ask_duckdb(orders: Rows, rates: Rows) -> Counter[Any]:
    tables = duckdb.connect()
    tables.register("orders", pa.Table.from_pylist(orders))
    tables.register("rates", pa.Table.from_pylist(rates))
    last = "ORDER BY r.ts::TIMESTAMP DESC, n DESC LIMIT 1"
    valid = "r.currency = o.currency AND r.ts::TIMESTAMP <= o.ts::TIMESTAMP"
    found = tables.sql(f"SELECT o.id, (SELECT price FROM rates r WHERE {valid} {last}) FROM orders o")
    return Counter(found.fetchall())


def read_versions(rates: DataFrame) -> DataFrame:
    return th.changes(rates, format="versions", key="currency", sequence="n", deleted="price IS NULL")


def test_versions_of_a_batch_are_those_of_duckdb(spark: SparkSession) -> None:
    drawn = {name: list(chain.from_iterable(epochs)) for name, epochs in draw_rows(random.Random(1)).items()}
    given = {}
    for name, rows in drawn.items():
        names = [column.split()[0] for column in DDL[name].split(", ")]
        values = [tuple(row[column] for column in names) for row in rows]
        frame = spark.createDataFrame(values, DDL[name].replace("TIMESTAMP", "STRING"))
        given[name] = frame.withColumn("ts", frame["ts"].cast("timestamp"))
    streams = {**given, "rates": read_versions(given["rates"])}
    expected = ask_duckdb(drawn["orders"], drawn["rates"])
    assert Counter(map(tuple, th.sql(spark, AS_OF.format("LEFT"), streams).collect())) == expected
    matched = Counter(map(tuple, th.sql(spark, AS_OF.format(""), streams).collect()))
    assert matched == Counter({row: n for row, n in expected.items() if row[1] is not None})
    assert 10 < len(matched) < len(expected)


class VersionFeed:
    """A folder of JSON files as a stream, one epoch per file."""

    def __init__(self, spark: SparkSession, folder: Path, ddl: str) -> None:
        self._spark, self._folder, self._ddl, self._n = spark, folder, ddl, 0
        folder.mkdir()

    def add(self, rows: Rows) -> None:
        path = self._folder / f"{self._n}.json"
        path.write_text("\n".join(map(json.dumps, rows)))
        os.utime(path, (1_700_000_000 + self._n,) * 2)
        self._n += 1

    def open(self) -> DataFrame:
        reader = self._spark.readStream.schema(self._ddl).option("maxFilesPerTrigger", 1)
        return reader.json(str(self._folder)).withWatermark("ts", "30 seconds")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["LEFT", ""])
def test_versions_of_a_stream_are_those_of_duckdb_after_a_restart(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    drawn, store = draw_rows(random.Random(2)), th.ParquetStore(str(tmp_path / "store"))
    feeds = {name: VersionFeed(spark, tmp_path / name, ddl) for name, ddl in DDL.items()}
    for chosen in (slice(0, 5), slice(5, None)):
        for name, epochs in drawn.items():
            for rows in epochs[chosen]:
                feeds[name].add(rows)
        streams = {"orders": feeds["orders"].open(), "rates": read_versions(feeds["rates"].open())}
        rows = th.sql(spark, AS_OF.format(kind), streams)
        query = th.write(rows, store, checkpoint=str(tmp_path / "checkpoint"), trigger="available now")
        query.awaitTermination()
    whole = [list(chain.from_iterable(epochs)) for epochs in (drawn["orders"], drawn["rates"])]
    decided = {row["id"] for row in chain.from_iterable(drawn["orders"][:-1])}
    expected = Counter({row: n for row, n in ask_duckdb(*whole).items() if row[0] in decided})
    if not kind:
        expected = Counter({row: n for row, n in expected.items() if row[1] is not None})
    found = Counter((row["id"], row["price"]) for row in store.read().to_pylist())
    assert found == expected
    assert len(found) > 100


def test_what_versions_cannot_have(spark: SparkSession) -> None:
    rates = spark.createDataFrame([("EUR", 1, 2)], "currency STRING, n INT, price INT")
    for refused, asked in (
        ("CHANGES_FORMAT.*key must name", {}),
        ("CHANGES_FORMAT.*late and strict", {"key": "currency", "late": "fail"}),
        ("CHANGES_FORMAT.*row does not belong", {"key": "currency", "row": "n INT"}),
        ("CHANGES_FORMAT.*must be a condition", {"key": "currency", "deleted": "price"}),
        ("UNKNOWN_COLUMN.*'symbol'", {"key": "symbol"}),
        ("UNSUPPORTED_TYPE.*sequence must be one value", {"key": "currency", "sequence": "array(n)"}),
        ("TIME_DEPENDENT.*sequence is about a row alone", {"key": "currency", "sequence": "now()"}),
    ):
        with pytest.raises(th.QueryError, match=refused):
            th.changes(rates, format="versions", **asked)  # type: ignore[arg-type]
    timed = rates.selectExpr("*", "TIMESTAMP '2026-01-05 09:00:00' AS ts")
    versions = th.changes(timed, format="versions", key=["currency"], sequence="n")
    assert versions.columns == ["currency", "n", "price", "ts", "_version"]
    orders = spark.createDataFrame([("EUR", 5)], "currency STRING, id INT").join(timed.select("ts"))
    on = "o.currency = v.currency AND v.ts <= o.ts"
    as_of = th.Nearest(1, by="o.ts - v.ts")
    for refused, frame in (
        ("select '_version' too", versions.select("currency", "ts")),
        ("versions without all columns of their key: none of 1", versions.drop("currency")),
        ("a filter reads 'price'.*by columns of their key", versions.where("currency = 'EUR' AND price > 1")),
        ("a filter reads 'n'", versions.dropna(subset=["n"])),
        ("some rows were left out .GlobalLimit", versions.limit(5).where("currency = 'EUR'")),
    ):
        with pytest.raises(th.QueryError, match=f"VERSIONS.*{refused}"):
            th.join({"o": orders, "v": frame}, on="o.ts >= v.ts", how=as_of)
    with pytest.raises(th.QueryError, match="UNKNOWN_COLUMN"):
        th.join({"o": orders, "v": versions}, on=f"{on} AND NOT v._version.deleted", how=as_of)
    with pytest.raises(th.QueryError, match=r"VERSIONS.*by=\"o.ts - v.ts\""):
        th.join({"o": orders, "v": versions}, on=on)
    with pytest.raises(th.QueryError, match="VERSIONS"):
        th.sql(spark, "SELECT o.id FROM o JOIN v ON o.currency = v.currency", {"o": orders, "v": versions})
    with pytest.raises(th.QueryError, match="VERSIONS"):
        th.aggregate({"o": orders, "v": versions}, on=on, aggs={"n": "count(*)"})
    filtered = "(SELECT * FROM v WHERE price > 1) AS w FOR SYSTEM_TIME AS OF o.ts ON o.currency = w.currency"
    with pytest.raises(th.QueryError, match=r"VERSIONS.*a filter reads 'price'"):
        th.sql(spark, f"SELECT o.id FROM o JOIN {filtered}", {"o": orders, "v": versions})
    # A column of the key may be filtered and have another name, and the order of versions is no column.
    renamed = versions.where("currency <> 'USD'").withColumnRenamed("currency", "code").drop("n")
    found = th.join({"o": orders, "v": renamed}, on="o.currency = v.code AND v.ts <= o.ts", how=as_of)
    assert found.schema["v"].dataType.names == ["code", "price", "ts"]  # type: ignore[union-attr]
